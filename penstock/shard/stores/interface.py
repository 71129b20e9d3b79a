"""What a shard needs of a store: immutable objects by key, and a log whose records are created once.

A call returns when what it did is durable. One that fails raises `ShardError`; if that is `passing`, the call
may have been carried out all the same, now or a little later, and may be made again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence


class Blobs(ABC):
    """Objects by key, `name/of/it`. What lies under a key never changes."""

    label: str
    """The place, for people."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Put an object there; the same one again does no harm."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """An object; None if it is not there."""

    @abstractmethod
    def keys(self, folder: str) -> Sequence[str]:
        """The keys of everything below a folder, of what a crash left there too."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there do no harm."""


class Log(ABC):
    """Records by number, from 0 on, for each name. Each is created once, by whoever comes first."""

    label: str
    rest = 0.0
    """For so many seconds it need not be looked for news where none came for a while: a look may cost."""

    @abstractmethod
    def create(self, name: str, number: int, data: bytes) -> bool:
        """Create a record whose predecessor is the newest one; False if somebody else did, or if there is no
        predecessor: it was trimmed, or all records are gone.

        After a call that failed but was carried out, the same call may return False: the data tells whose
        the record is. Where this one and its predecessor are trimmed in the middle of the call, some
        stores create another one. It comes too late and means nothing: whoever creates one looks for newer
        ones afterwards.
        """

    @abstractmethod
    def numbers(self, name: str, after: int = -1) -> Sequence[int]:
        """The numbers of the records that come after one, in order."""

    @abstractmethod
    def read(self, name: str, number: int) -> bytes | None:
        """A record; None if it is not there, or not any more."""

    @abstractmethod
    def trim(self, name: str, below: int) -> None:
        """Delete the records before a number. The newest record of all always stays."""

    def close(self) -> None:
        """Release what it holds; nothing by default."""
        return

    def newest(self, name: str) -> tuple[int, bytes] | None:
        """The newest record; None if there is none."""
        while numbers := self.numbers(name):
            data = self.read(name, numbers[-1])
            if data is not None:  # it may have been trimmed since, if there are newer ones
                return numbers[-1], data
        return None
