"""What a runtime configuration says of replicas and of the group that they share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

OWN_GROUP = "group"
"""The group's directory beside the storage of its pipeline, if it does not lie elsewhere."""

_ELSEWHERE = ("uri", "log_uri", "name")


def replica_count(config: Mapping[str, Any]) -> int:
    """How many processes run the pipeline at the same time."""
    return int(config.get("replicas", 1))


def in_group(config: Mapping[str, Any]) -> bool:
    """Whether the pipeline is a replica, or several, rather than one that runs alone."""
    return replica_count(config) > 1 or config.get("group") is not None


def place_of_group(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Which group it is, as far as the state on disk depends on that; None: it runs alone.

    >>> place_of_group({"replicas": 2, "group": {"lease_seconds": 5}}), place_of_group({})
    ({}, None)
    """
    given = config.get("group") or {}
    return {name: given[name] for name in _ELSEWHERE if name in given} if in_group(config) else None


def group_setting(config: Mapping[str, Any], directory: Path) -> dict[str, Any] | None:
    """The setting `group` for the replicas of a pipeline whose directory this is; None: it runs alone."""
    if not in_group(config):
        return None
    return {"uri": str((directory / OWN_GROUP).absolute()), **(config.get("group") or {})}


def storage_name(replica: int) -> str:
    """The storage of a replica in the directory of its pipeline.

    >>> storage_name(0), storage_name(1)
    ('storage', 'storage-1')
    """
    return f"storage-{replica}" if replica else "storage"
