"""Times and sizes as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def age(at: datetime) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def size(count: int) -> str:
    """A number of bytes.

    >>> [size(count) for count in (12, 3_456, 7_890_123_456)]
    ['12 B', '3.4 KiB', '7.3 GiB']
    """
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
