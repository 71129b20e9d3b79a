"""Write a file so that it is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Protocol


class Writer(Protocol):
    """Fills an open file."""

    def __call__(self, file: BinaryIO, /) -> object: ...


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, fill: Writer, *, durable: bool) -> int:
    """Write `path` through a temporary name and a rename; returns its size.

    With `durable` the bytes and the name survive a power cut; without it, only a crash of the
    process. A file that is never renamed is garbage that its `.tmp` suffix gives away; only a crash
    leaves one, for a full disk has no room for it.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            fill(file)
            file.flush()
            size = file.tell()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)
    return size
