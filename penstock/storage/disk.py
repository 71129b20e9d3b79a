"""The calls by which bytes and names become durable, in one place.

Tests put a disk there that fails, tears or forgets.
"""

from __future__ import annotations

import os
from pathlib import Path


class Disk:
    """What the operating system does."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write some of the data; returns how many bytes."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Make the bytes of an open file durable, or the names in an open directory."""
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its name, in place of one that may have it."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Delete a file, if it is there."""
        path.unlink(missing_ok=True)


_disk = Disk()


def disk() -> Disk:
    """The disk in use."""
    return _disk


def use_disk(other: Disk) -> Disk:
    """Put another disk in its place, for a test; returns the one before."""
    global _disk
    before, _disk = _disk, other
    return before
