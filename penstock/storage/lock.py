"""A directory that one process at a time uses."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO

from penstock.errors import StateError

LOCK_FILE = "LOCK"


def locked(directory: Path, user: str) -> TextIO:
    """Held as long as the file is open; it goes with the process. `StateError` says which process has it, and
    that `user`, such as a pipeline, is to be stopped first."""
    file = open(directory / LOCK_FILE, "a+")  # noqa: SIM115 (held until it is closed)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise StateError(
            f"the storage {directory} is in use by {holder}. Stop that {user} first, or give this one another"
            " directory."
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()}\n")
    file.flush()
    return file
