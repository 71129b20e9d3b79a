"""A bucket, or a folder in one, whose store heeds conditions: it is tried out before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import ShardError, SyncError
from penstock.shard.stores.interface import Blobs, Log
from penstock.storage.location import Location, honours_conditions

T = TypeVar("T")

_DIGITS = 16


@dataclass(frozen=True)
class Keys:
    """How a store is reached."""

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    upload_parts: int = 4


class Bucket(Blobs, Log):
    """Objects and records as objects of the store."""

    rest = 0.5

    def __init__(self, bucket: str, keys: Keys) -> None:
        self._location = Location(keys, bucket)
        self.label = self._location.label
        self._tried = False

    # -- objects --------------------------------------------------------------------------------

    def put(self, key: str, data: bytes) -> None:
        _done(lambda: self._location.put(key, data))

    def get(self, key: str) -> bytes | None:
        found = _done(lambda: self._location.read(key))
        return None if found is None else found.data

    def keys(self, folder: str) -> Sequence[str]:
        return sorted(_done(lambda: self._location.keys(folder)))

    def delete(self, keys: Iterable[str]) -> None:
        _done(lambda: self._location.delete(keys))

    # -- records --------------------------------------------------------------------------------

    def create(self, name: str, number: int, data: bytes) -> bool:
        if not self._tried:
            self._try_out()
        if number > 0 and _done(lambda: self._location.size(_record(name, number - 1))) is None:
            return False
        return _done(lambda: self._location.create(_record(name, number), data))

    def numbers(self, name: str, after: int = -1) -> Sequence[int]:
        start = None if after < 0 else _record(name, after)
        found = _done(lambda: self._location.keys(f"{name}/log", start))
        return sorted(int(key.rpartition("/")[2]) for key in found)

    def read(self, name: str, number: int) -> bytes | None:
        return self.get(_record(name, number))

    def trim(self, name: str, below: int) -> None:
        self.delete([_record(name, number) for number in self.numbers(name)[:-1] if number < below])

    def _try_out(self) -> None:
        if not _done(lambda: honours_conditions(self._location)):
            raise ShardError(
                f"{self.label} ignores conditional writes (If-None-Match), so two writers could both believe"
                " that they were first. Use a store that honours them, or keep the log of the shards in a"
                " database: log_uri 'postgresql://...'."
            )
        self._tried = True


def _record(name: str, number: int) -> str:
    return f"{name}/log/{number:0{_DIGITS}}"


def _done(act: Callable[[], T]) -> T:
    try:
        return act()
    except SyncError as error:
        raise ShardError(str(error), passing=error.passing) from error
