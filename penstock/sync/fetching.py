"""Get files from an object store: a file has its name only when every byte of it was checked.

A fetch that was cut off goes on where it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import DamagedError, SyncError
from penstock.storage.disk import disk
from penstock.storage.files import content_of, make_directory, remove_garbage, sync_directory, sync_file
from penstock.storage.location import Location, NoRangesError
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop, each
from penstock.sync.model import Piece

_log = logging.getLogger("penstock")

_ATTEMPTS = 3
_STEP = 8 << 20
"""How many bytes are asked for at once."""

PARTIAL_SUFFIX = ".part"
"""Of a file that is not there whole yet."""


class Fetcher:
    """Gets files of one place to this machine."""

    def __init__(self, location: Location, config: SyncConfig, stop: Stop) -> None:
        self._location = location
        self._config = config
        self._stop = stop

    def fetch(self, pieces: Sequence[Piece], copied: Copied) -> None:
        """All of them, durably; or an error, and perhaps some."""

        def fetch(piece: Piece) -> None:
            self._one(piece)
            copied.add(piece)

        directories = sorted({piece.path.parent for piece in pieces})
        for directory in directories:
            make_directory(directory)
        each(fetch, pieces, self._config.downloads, self._stop)
        for directory in directories:
            sync_directory(directory)

    def _one(self, piece: Piece) -> None:
        """One file, whole and checked. A wrong byte may have come on the way: it is fetched again."""
        partial = piece.path.with_name(f"{piece.path.name}{PARTIAL_SUFFIX}")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._bytes(piece, partial)
            except SyncError as error:
                if not error.passing or attempt == _ATTEMPTS:
                    raise
                continue  # behind what has come
            found = content_of(partial)
            if found == piece.content:
                sync_file(partial)
                disk().rename(partial, piece.path)
                return
            _log.warning("%s: %s came as %s; it is fetched again", self._location, piece.key, found)
            remove_garbage(partial)
        raise self._damaged(piece, f"damaged: expected {piece.content}, found {found}")

    def _bytes(self, piece: Piece, partial: Path) -> None:
        """What is not there yet, behind what is."""
        have = partial.stat().st_size if partial.exists() else 0
        if have > piece.content.bytes:
            remove_garbage(partial)
            have = 0
        if have == 0 and piece.content.bytes < self._config.large:
            self._whole(piece, partial)
            return
        try:
            self._rest(piece, partial, have)
        except NoRangesError:
            self._whole(piece, partial)

    def _whole(self, piece: Piece, partial: Path) -> None:
        came = False
        with open(partial, "wb", buffering=0) as file:
            for data in self._location.whole(piece.key, _STEP):
                self._stop.check()
                came = True
                _write(file.fileno(), data)
        if not came and piece.content.bytes:
            raise self._damaged(piece, "missing")

    def _rest(self, piece: Piece, partial: Path, have: int) -> None:
        """In parts, several at once if there are many."""
        streams = self._config.streams if piece.content.bytes >= self._config.large else 1
        ranges = list(_ranges(have, piece.content.bytes))

        def part(place: tuple[int, int]) -> bytes:
            data = self._location.part(piece.key, *place)
            if data is None:
                raise self._damaged(piece, "missing")
            return data

        with open(partial, "ab", buffering=0) as file:
            for at in range(0, len(ranges), streams):
                for data in each(part, ranges[at : at + streams], streams, self._stop):
                    _write(file.fileno(), data)

    def _damaged(self, piece: Piece, how: str) -> DamagedError:
        return DamagedError(
            f"{self._location}: {piece.key} is {how}", bucket=self._location.bucket, key=piece.key
        )


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


def missing(pieces: Sequence[Piece], stop: Stop) -> list[Piece]:
    """Those that this machine does not have as they must be."""

    def lacks(piece: Piece) -> bool:
        stop.check()
        try:
            return content_of(piece.path) != piece.content
        except OSError:
            return True

    return [piece for piece in pieces if lacks(piece)]
