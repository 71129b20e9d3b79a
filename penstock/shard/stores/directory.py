"""A directory on a disk that all writers and readers have: local, or a network file system with hard links.

<name>/log/0000000000000042       a record
<name>/parts/...                  objects
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import ShardError
from penstock.shard.stores.interface import Blobs, Log
from penstock.storage.disk import disk
from penstock.storage.files import make_directory, sync_directory, write_file

_DIGITS = 16


class Directory(Blobs, Log):
    """Objects and records as files; what is being written has a name that ends in `.tmp`."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.label = str(self._root)

    # -- objects --------------------------------------------------------------------------------

    def put(self, key: str, data: bytes) -> None:
        path = self._root / key
        with self._explained("written", key):
            make_directory(path.parent)
            write_file(path, lambda file: file.write(data), durable=True)

    def get(self, key: str) -> bytes | None:
        with self._explained("read", key):
            try:
                return (self._root / key).read_bytes()
            except FileNotFoundError:
                return None

    def keys(self, folder: str) -> Sequence[str]:
        with self._explained("listed", folder):
            found = (path for path in (self._root / folder).rglob("*") if path.is_file())
            return sorted(path.relative_to(self._root).as_posix() for path in found)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._explained("deleted", key):
                disk().remove(self._root / key)

    # -- records --------------------------------------------------------------------------------

    def create(self, name: str, number: int, data: bytes) -> bool:
        path = self._record(name, number)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
        with self._explained("written", f"record {number} of {name}"):
            if number == 0:
                make_directory(path.parent)
            try:
                write_file(temporary, lambda file: file.write(data), durable=False)
                _sync(temporary)
                if number > 0 and not self._record(name, number - 1).exists():
                    return False
                os.link(temporary, path)
            except FileExistsError:
                return False
            except FileNotFoundError:  # others are far ahead, and trimmed it; or the directory is gone
                return False
            finally:
                temporary.unlink(missing_ok=True)
            sync_directory(path.parent)
        return True

    def numbers(self, name: str, after: int = -1) -> Sequence[int]:
        with self._explained("listed", name):
            try:
                found = (int(file) for file in os.listdir(self._root / name / "log") if file.isdecimal())
                return sorted(number for number in found if number > after)
            except FileNotFoundError:
                return ()

    def read(self, name: str, number: int) -> bytes | None:
        return self.get(self._record(name, number).relative_to(self._root).as_posix())

    def trim(self, name: str, below: int) -> None:
        numbers = self.numbers(name)
        below = min(below, numbers[-1] if numbers else 0)
        with self._explained("trimmed", name):
            for path in sorted(self._record(name, 0).parent.iterdir()):  # what a crash left, too
                number = path.name.partition(".")[0]
                if number.isdecimal() and int(number) < below:
                    disk().remove(path)

    def _record(self, name: str, number: int) -> Path:
        return self._root / name / "log" / f"{number:0{_DIGITS}}"

    @contextmanager
    def _explained(self, done: str, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ShardError(
                f"{self.label}: {what} cannot be {done}: {error.strerror or error}. Check the disk and who"
                " may write there.",
                passing=not isinstance(error, PermissionError | NotADirectoryError | FileNotFoundError),
            ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        disk().sync(descriptor)
    finally:
        os.close(descriptor)
