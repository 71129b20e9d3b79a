"""Files that are read from the disk again, as after a restart of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def drop_from_memory(*directories: Path) -> None:
    """Ask the system to forget the content of all files there; it keeps what is not yet on the disk."""
    for directory in directories:
        for path in directory.rglob("*"):
            if not path.is_file():
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
