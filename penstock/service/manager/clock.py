"""The time as the database and the answers have it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """This moment in RFC 3339; such texts sort by time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_since(moment: str) -> float:
    """How long ago a moment of the database was."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
