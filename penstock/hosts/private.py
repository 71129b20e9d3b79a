"""Files that only this user may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from penstock.storage.disk import disk
from penstock.storage.files import sync_directory


def write_private(path: Path, text: str) -> None:
    """Write a file, whole or not at all and durably, that only this user may read."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            left = memoryview(text.encode())
            while left:
                left = left[disk().write(descriptor, left) :]
            disk().sync(descriptor)
        finally:
            os.close(descriptor)
        disk().rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def kept_secret(path: Path) -> str:
    """The secret in a file; a new one if there is none yet."""
    try:
        found = path.read_text("utf-8").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_urlsafe(32)
        write_private(path, found + "\n")
    return found
