"""Put files into an object store: what is not there yet, and each only if it is what its key says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from penstock.errors import DamagedError
from penstock.storage.files import content_of
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop, each
from penstock.sync.model import Piece


class Sender:
    """Puts files of one machine into one place."""

    def __init__(self, location: Location, config: SyncConfig, stop: Stop) -> None:
        self._location = location
        self._config = config
        self._stop = stop
        self._there: set[str] = set()
        """Keys that were seen or put there, and not deleted since: only the holder deletes."""

    def unknown(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Those that were not seen there yet."""
        return [piece for piece in pieces if piece.key not in self._there]

    def missing(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Those that the place does not have. Each is asked for by its key, for a listing may lag behind."""
        unknown = self.unknown(pieces)
        sizes = each(lambda piece: self._location.size(piece.key), unknown, self._config.lookups, self._stop)
        found = [size == piece.content.bytes for piece, size in zip(unknown, sizes, strict=True)]
        self.are_there(piece.key for piece, there in zip(unknown, found, strict=True) if there)
        return [piece for piece, there in zip(unknown, found, strict=True) if not there]

    def are_there(self, keys: Iterable[str]) -> None:
        """They need not be looked for."""
        self._there.update(keys)

    def are_gone(self, keys: Collection[str]) -> None:
        """They were deleted."""
        self._there.difference_update(keys)

    def forget(self) -> None:
        """Nobody knows what is there."""
        self._there.clear()

    def send(self, pieces: Sequence[Piece], copied: Copied) -> None:
        """All of them, or an error and perhaps some."""

        def send(piece: Piece) -> None:
            _refuse_damaged(piece)
            self._location.upload(piece.key, piece.path)
            self._there.add(piece.key)
            copied.add(piece)

        each(send, pieces, self._config.uploads, self._stop)


def _refuse_damaged(piece: Piece) -> None:
    """What is not what it was is not copied under a name that says it is."""
    try:
        found = content_of(piece.path)
    except OSError as error:
        raise DamagedError(f"{piece.path} cannot be read: {error.strerror}") from error
    if found != piece.content:
        raise DamagedError(f"{piece.path} is damaged: expected {piece.content}, found {found}")
