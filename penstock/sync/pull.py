"""Copy a checkpoint from an object store into a storage directory: batches, state files, manifest, catalog.

Only what is not there yet is fetched, and a file has its name only when every byte of it was checked. A fetch
that was cut off goes on where it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.checkpoint.model import Catalog
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import DamagedError, SyncError
from penstock.failpoints import failpoint
from penstock.journal.journal import Journal, remove_journal
from penstock.storage.disk import disk
from penstock.storage.files import (
    content_of,
    explained,
    make_directory,
    remove_garbage,
    sync_directory,
    sync_file,
    write_file,
)
from penstock.storage.location import Location, NoRangesError
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop, each
from penstock.sync.model import Piece, batches_of, files_of, manifest_path
from penstock.sync.remote import Found

_log = logging.getLogger("penstock")

_ATTEMPTS = 3
_STEP = 8 << 20
"""How many bytes are asked for at once."""

PARTIAL_SUFFIX = ".part"
"""Of a file that is not there whole yet."""


class Pull:
    """Fetches checkpoints into one storage directory, which nobody runs in meanwhile."""

    def __init__(self, store: CheckpointStore, config: SyncConfig, stop: Stop | None = None) -> None:
        self._stop = stop or Stop()
        self._store = store
        self._root = store.root
        self._config = config

    def run(self, found: Found, pipeline: str, owner: str, copied: Copied | None = None) -> Copied:
        """Make a checkpoint the newest of the directory; `copied` is told, and returned, what is fetched.

        `pipeline` is whose the directory is to be, `owner` what outputs know it by.
        """
        copied = copied or Copied()
        if self._store.read() is None:
            self._begin(pipeline, owner)
        if any(entry.id == found.entry.id for entry in self._store.catalog.checkpoints):
            if self._store.catalog.owner != owner:  # the same checkpoint, in a place that is another's
                self._store.save(replace(self._store.catalog, owner=owner))
            return copied
        batches = self._missing(list(batches_of(found.manifest, self._root)))
        files = self._missing(list(files_of(found.manifest, self._root)))
        copied.expect([*batches, *files])
        with explained("the checkpoint could not be fetched", "Make room on the disk, and try again."):
            self._fetch(found.location, batches, copied)
            failpoint("sync.fetched-batches")
            self._fetch(found.location, files, copied)
            path = manifest_path(self._root, found.entry.id)
            make_directory(path.parent)
            write_file(path, lambda file: file.write(found.data), durable=True)
            failpoint("sync.fetched-manifest")
            if not self._store.catalog.checkpoints:
                begin_journal(self._root / found.manifest.journal, found.entry.record)
        self._list(found, pipeline, owner)
        failpoint("sync.fetched")
        return copied

    def _begin(self, pipeline: str, owner: str) -> None:
        """An empty catalog comes first: with it, what a crash leaves is garbage and no lost checkpoint."""
        with explained(f"{self._root} cannot be used", "Check the disk and its rights."):
            make_directory(self._store.directory)
            make_directory(self._root / "batches")
        self._store.save(Catalog(pipeline, owner))

    def _list(self, found: Found, pipeline: str, owner: str) -> None:
        plain = replace(found.entry, suspect=False, aside=False, verified=None)
        with self._store.changing:
            catalog = self._store.catalog
            listed = (*catalog.checkpoints, plain)
            self._store.save(Catalog(pipeline, owner, found.manifest.journal, listed))

    @staticmethod
    def _missing(pieces: Sequence[Piece]) -> list[Piece]:
        """Those that the directory does not have as they must be."""

        def lacks(piece: Piece) -> bool:
            try:
                return content_of(piece.path) != piece.content
            except OSError:
                return True

        return [piece for piece in pieces if lacks(piece)]

    def _fetch(self, location: Location, pieces: Sequence[Piece], copied: Copied) -> None:
        def fetch(piece: Piece) -> None:
            self._one(location, piece)
            copied.add(piece)

        directories = sorted({piece.path.parent for piece in pieces})
        for directory in directories:
            make_directory(directory)
        each(fetch, pieces, self._config.downloads, self._stop)
        for directory in directories:
            sync_directory(directory)

    def _one(self, location: Location, piece: Piece) -> None:
        """One file, whole and checked. A wrong byte may have come on the way: it is fetched again."""
        partial = piece.path.with_name(f"{piece.path.name}{PARTIAL_SUFFIX}")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._bytes(location, piece, partial)
            except SyncError as error:
                if not error.passing or attempt == _ATTEMPTS:
                    raise
                continue  # behind what has come
            found = content_of(partial)
            if found == piece.content:
                sync_file(partial)
                disk().rename(partial, piece.path)
                return
            _log.warning("%s: %s came as %s; it is fetched again", location, piece.key, found)
            remove_garbage(partial)
        raise DamagedError(f"{location}: {piece.key} is damaged: expected {piece.content}, found {found}")

    def _bytes(self, location: Location, piece: Piece, partial: Path) -> None:
        """What is not there yet, behind what is."""
        have = partial.stat().st_size if partial.exists() else 0
        if have > piece.content.bytes:
            remove_garbage(partial)
            have = 0
        if have == 0 and piece.content.bytes < self._config.large:
            self._whole(location, piece, partial)
            return
        try:
            self._rest(location, piece, partial, have)
        except NoRangesError:
            self._whole(location, piece, partial)

    def _whole(self, location: Location, piece: Piece, partial: Path) -> None:
        came = False
        with open(partial, "wb", buffering=0) as file:
            for data in location.whole(piece.key, _STEP):
                self._stop.check()
                came = True
                _write(file.fileno(), data)
        if not came and piece.content.bytes:
            raise DamagedError(f"{location}: {piece.key} is missing")

    def _rest(self, location: Location, piece: Piece, partial: Path, have: int) -> None:
        """In parts, several at once if there are many."""
        streams = self._config.streams if piece.content.bytes >= self._config.large else 1
        ranges = list(_ranges(have, piece.content.bytes))

        def part(place: tuple[int, int]) -> bytes:
            data = location.part(piece.key, *place)
            if data is None:
                raise DamagedError(f"{location}: {piece.key} is missing")
            return data

        with open(partial, "ab", buffering=0) as file:
            for at in range(0, len(ranges), streams):
                for data in each(part, ranges[at : at + streams], streams, self._stop):
                    _write(file.fileno(), data)


def begin_journal(directory: Path, record: int) -> None:
    """An empty journal, which goes on from a checkpoint with this record."""
    remove_journal(directory)
    journal = Journal(directory, durable=True)
    journal.create(record)
    journal.close()


def _ranges(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The bytes from `start` to `end`, step by step.

    >>> list(_ranges(8 << 20, 17 << 20)) == [(8 << 20, 16 << 20), (16 << 20, 17 << 20)]
    True
    """
    for at in range(start, end, _STEP):
        yield at, min(at + _STEP, end)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[disk().write(descriptor, left) :]
