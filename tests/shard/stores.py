"""Stores for tests of shards: in memory, and one whose calls fail, or succeed and say that they failed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.errors import ShardError
from penstock.shard.stores.interface import Blobs, Log

T = TypeVar("T")


class Memory(Blobs, Log):
    """Forgets what was trimmed, as directories and buckets do: such a record can be created again."""

    label = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.records: dict[str, dict[int, bytes]] = {}

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def keys(self, folder: str) -> Sequence[str]:
        return sorted(key for key in list(self.objects) if key.startswith(f"{folder}/"))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def create(self, name: str, number: int, data: bytes) -> bool:
        return self.records.setdefault(name, {}).setdefault(number, data) is data

    def numbers(self, name: str, after: int = -1) -> Sequence[int]:
        return sorted(number for number in list(self.records.get(name, {})) if number > after)

    def read(self, name: str, number: int) -> bytes | None:
        return self.records.get(name, {}).get(number)

    def trim(self, name: str, below: int) -> None:
        for number in self.numbers(name):
            if number < below:
                del self.records[name][number]


class Unreliable(Blobs, Log):
    """Another store, whose every call may fail: before it is carried out, after it, or long before it.

    Between any two calls others may do something: `meanwhile`.
    """

    def __init__(self, store: Memory, chance: random.Random, meanwhile: Callable[[], None]) -> None:
        self.label = store.label
        self._store = store
        self._chance = chance
        self._meanwhile = meanwhile
        self._late: list[Callable[[], object]] = []
        self.reliable = False

    def put(self, key: str, data: bytes) -> None:
        self._asked(lambda: self._store.put(key, data), late=True)

    def get(self, key: str) -> bytes | None:
        return self._asked(lambda: self._store.get(key))

    def keys(self, folder: str) -> Sequence[str]:
        return self._asked(lambda: self._store.keys(folder))

    def delete(self, keys: Iterable[str]) -> None:
        listed = list(keys)
        self._asked(lambda: self._store.delete(listed))

    def create(self, name: str, number: int, data: bytes) -> bool:
        return self._asked(lambda: self._store.create(name, number, data), late=True)

    def numbers(self, name: str, after: int = -1) -> Sequence[int]:
        return self._asked(lambda: self._store.numbers(name, after))

    def read(self, name: str, number: int) -> bytes | None:
        return self._asked(lambda: self._store.read(name, number))

    def trim(self, name: str, below: int) -> None:
        self._asked(lambda: self._store.trim(name, below))

    def _asked(self, act: Callable[[], T], *, late: bool = False) -> T:
        """`late`: it may be carried out long after its caller was told that it failed."""
        if self.reliable:
            return act()
        self._meanwhile()
        while self._late and self._chance.random() < 0.3:
            self._late.pop(self._chance.randrange(len(self._late)))()
        what = self._chance.random()
        if what < 0.04:
            raise ShardError("it was not done", passing=True)
        if what < 0.08 and late:
            self._late.append(act)
            raise ShardError("it will be done later", passing=True)
        done = act()
        if what > 0.94:
            raise ShardError("it was done, and the answer was lost", passing=True)
        self._meanwhile()
        return done

    def settle(self) -> None:
        """Everything that is late is done now, and nothing fails any more."""
        self.reliable = True
        for act in self._late:
            act()
        self._late.clear()
