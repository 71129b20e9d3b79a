"""Read a shard: hold back what is let go of, and follow what is added."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import TimeGoneError
from penstock.shard.shard import Shard
from penstock.shard.state import Reader, State


@dataclass(frozen=True)
class Progress:
    """What a shard has from one time to before another."""

    lower: int
    upper: int
    changes: pa.Table


class ShardReader:
    """Everything from its `since` on stays readable, as long as it lives."""

    def __init__(
        self, shard: Shard, purpose: str, since: int | None = None, *, id_: str = "", lease: float = 0.0
    ) -> None:
        """Raises `TimeGoneError` if that time cannot be read any more; None: the first that can.

        One that comes back gives its `id_`, and has what it held back if it was not away for longer than
        its own lease, in seconds.
        """
        self.shard = shard
        self.id = id_ or secrets.token_hex(8)
        self._released = 0
        self._lock = threading.Lock()
        self._reading: list[int] = []  # numbers of the states whose objects are being read

        def change(state: State, number: int) -> State | None:
            if self.id in state.readers:
                return None
            first = state.since if since is None else since
            return state.with_reader(self.id, Reader(purpose, first, number - 1, 0, lease))

        shard.machine.update(change)

    @property
    def since(self) -> int:
        return self.shard.machine.state.reader(self.id).since

    def snapshot(self, at: int) -> pa.Table:
        """What the shard holds at a time, with `_weight`."""
        with self._pinned():
            return self.shard.snapshot(at)

    def listen(self, lower: int, *, most: int | None = None) -> Progress:
        """The changes from a time on, as far as there are any now: up to before `most`, if that is given."""
        with self._pinned():
            state = self.shard.machine.refresh()
            state.reader(self.id)
            upper = state.upper if most is None else min(state.upper, most)
            if upper <= lower:
                return Progress(lower, lower, self.shard.schema.empty_table())
            return Progress(lower, upper, self.shard.changes(lower, upper))

    def downgrade_since(self, time: int) -> None:
        """Nothing before this time will be asked for any more. It does not go back."""

        def change(state: State, number: int) -> State | None:
            reader = state.reader(self.id)
            if time <= reader.since:
                return None
            moved = replace(reader, since=time, beat=reader.beat + 1, seen=self._seen(number - 1))
            return replace(state, readers={**state.readers, self.id: moved})

        self.shard.machine.update(change)

    def release(self, time: int) -> None:
        """As `downgrade_since`, with the next sign of life: that is a record which is written anyway."""
        self._released = time

    def beaten(self, state: State, number: int) -> State:
        """The state with a sign of life."""
        reader = state.reader(self.id)
        moved = replace(
            reader,
            since=max(reader.since, self._released),
            beat=reader.beat + 1,
            seen=max(reader.seen, self._seen(number - 1)),
        )
        return replace(state, readers={**state.readers, self.id: moved})

    def close(self) -> None:
        """Be gone: nothing is held back any more."""
        self.shard.machine.update(
            lambda state, _: state.without_reader(self.id) if self.id in state.readers else None
        )

    def _seen(self, number: int) -> int:
        with self._lock:
            return min([number, *self._reading])

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        with self._lock:
            number = self.shard.machine.number
            self._reading.append(number)
        try:
            yield
        except TimeGoneError:
            self.shard.machine.refresh().reader(self.id)  # if others took it for gone, that is the reason
            raise
        finally:
            with self._lock:
                self._reading.remove(number)
