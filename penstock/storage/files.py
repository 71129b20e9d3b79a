"""Write a file so that it is there whole or not at all, and know its bytes again."""

from __future__ import annotations

import io
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from penstock.errors import StorageError
from penstock.storage.disk import disk

_log = logging.getLogger("penstock")

_CHUNK = 4 << 20

Filler = Callable[["Sink"], object]
"""Fills a file that is being written."""


@dataclass(frozen=True)
class Content:
    """What a file must contain: so many bytes, with this checksum (XXH3, 128 bits, as hex digits)."""

    bytes: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.bytes} bytes with checksum {self.checksum}"


class Sink(io.RawIOBase):
    """An open file that is written from its beginning to its end, and the checksum of what was written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hash = xxhash.xxh3_128()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        left = memoryview(data).cast("B")  # type: ignore[arg-type]
        size = len(left)
        self._hash.update(left)
        while left:
            left = left[disk().write(self._descriptor, left) :]
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    @property
    def content(self) -> Content:
        return Content(self._size, self._hash.hexdigest())


def write_file(path: Path, fill: Filler, *, durable: bool) -> Content:
    """Write `path` through a temporary name and a rename; returns what it contains.

    With `durable` the bytes and the name survive a power cut; without it, only a crash of the
    process. A file that is never renamed is garbage that its `.tmp` suffix gives away; only a crash
    leaves one, for a full disk has no room for it.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            sink = Sink(descriptor)
            fill(sink)
            content = sink.content
            if durable:
                disk().sync(descriptor)
        disk().rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)
    return content


def content_of(path: Path) -> Content:
    """What a file contains; `OSError` if it cannot be read."""
    found = xxhash.xxh3_128()
    size = 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            found.update(data)
            size += len(data)
    return Content(size, found.hexdigest())


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable that another process wrote."""
    with _opened(path, os.O_RDONLY) as descriptor:
        disk().sync(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    with _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        disk().sync(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, durably: each name is synced up to the first that was there."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def remove_garbage(path: Path) -> bool:
    """Delete a file that nobody needs; False if that is not possible: then it stays, for it does no harm."""
    try:
        disk().remove(path)
        return True
    except OSError as error:
        _log.warning("%s is not needed any more and cannot be deleted: %s", path, error.strerror)
        return False


def remove_directory(directory: Path, first: str) -> bool:
    """Delete a directory that nobody needs; False if that is not possible.

    Its file `first` is gone for good before any other goes: without it, nobody takes what a crash leaves of
    the directory for what it was.
    """
    if not remove_garbage(directory / first):
        return False
    try:
        sync_directory(directory)
    except OSError as error:
        _log.warning("%s is not needed any more and cannot be deleted: %s", directory, error.strerror)
        return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def remove_if_empty(directory: Path) -> None:
    """Delete a directory that holds nothing."""
    with suppress(OSError):
        directory.rmdir()


def children(directory: Path) -> Sequence[Path]:
    """What is in a directory, by name; nothing if there is no such directory."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()


@contextmanager
def explained(what: str, advice: str) -> Iterator[None]:
    """Make an error of the disk one of the storage: what did not work, why, and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        where = f"{error.filename}: " if error.filename else ""
        raise StorageError(f"{what}: {where}{reason}. {advice}") from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
