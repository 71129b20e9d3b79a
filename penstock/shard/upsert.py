"""Upsert into a shard that others write, too: which row a key has is what was appended, by whomever.

Input comes as new rows by key, at times. The shard's upper `u` says how far somebody has appended. Of what is
buffered for a time `t`:

    t < u    is dropped: a peer appended what is to be said about that time
    t = u    is emitted, and takes back the rows that its keys have in the state at `u`
    t > u    is held until the shard gets there

The state is the shard's content before `u`. It moves by feedback alone, which is what the shard really got:
never by what this writer wanted to append. So a writer that lost a race, or was stopped while others went on,
does not take back a row that is not there, nor leave two rows of one key.

    input frontier    before it, all input has come
    own frontier      before it, this writer has nothing more to say

Nothing that is before both the input frontier and `u` is ever kept, so the own frontier gets past `u` as soon
as the input does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from penstock.errors import DivergedError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class Rule(Enum):
    """What becomes of buffered input."""

    DROP = auto()
    EMIT = auto()
    HOLD = auto()


def rule(time: int, upper: int) -> Rule:
    """What becomes of the input of a time, given the shard's upper."""
    if time < upper:
        return Rule.DROP
    return Rule.EMIT if time == upper else Rule.HOLD


@dataclass(frozen=True)
class Emission(Generic[K, V]):
    """What to append next: changes at `lower`, as (key, row, weight). The shard's upper must be `lower`."""

    lower: int
    upper: int
    changes: tuple[tuple[K, V, int], ...] = ()


class Upsert(Generic[K, V]):
    """One writer's side of it. No I/O, no clock: it is told what happened, and asked what to do."""

    def __init__(self, resume_upper: int = 0, state: Mapping[K, V] | None = None) -> None:
        """`resume_upper`: the shard's upper at the start; `state`: what the shard holds before it."""
        self.upper = resume_upper
        self.input_frontier = 0
        self._state: dict[K, V] = dict(state or {})
        self._buffer: dict[int, dict[K, V | None]] = {}

    # -- what happened --------------------------------------------------------------------------

    def buffer(self, time: int, rows: Iterable[tuple[K, V | None]]) -> None:
        """Input came: the new rows of some keys, None for one that is gone; the last row of a key counts."""
        assert time >= self.input_frontier, "input does not come after its frontier"
        if rule(time, self.upper) is not Rule.DROP:
            self._buffer.setdefault(time, {}).update(rows)

    def seal(self, frontier: int) -> None:
        """All input before this time has come."""
        self.input_frontier = max(self.input_frontier, frontier)

    def feedback(self, upper: int, changes: Iterable[tuple[K, V, int]]) -> None:
        """The shard's upper is this now, and these are all changes that it got since the one before."""
        assert upper >= self.upper, "the upper of a shard does not go back"
        sums: dict[tuple[K, V], int] = {}
        for key, row, weight in changes:
            sums[key, row] = sums.get((key, row), 0) + weight
        for (key, row), weight in sums.items():
            if weight < 0 and (weight < -1 or self._state.pop(key, None) != row):
                raise DivergedError(f"the shard lost a row of {key!r} that it did not have: {row!r}")
        for (key, row), weight in sums.items():
            if weight > 0:
                if weight > 1 or key in self._state:
                    raise DivergedError(f"the shard has several rows of {key!r}, among them {row!r}")
                self._state[key] = row
        self.upper = upper
        self._buffer = {
            time: rows for time, rows in self._buffer.items() if rule(time, upper) is not Rule.DROP
        }

    # -- what to do -----------------------------------------------------------------------------

    @property
    def rows(self) -> Iterator[V]:
        """All rows that it may still have to speak of."""
        yield from self._state.values()
        for buffered in self._buffer.values():
            yield from (row for row in buffered.values() if row is not None)

    @property
    def state(self) -> Mapping[K, V]:
        """What the shard holds before `upper`."""
        return self._state

    @property
    def frontier(self) -> int:
        """The own frontier."""
        return min([self.input_frontier, *self._buffer])

    @property
    def held(self) -> int:
        """How many rows are buffered."""
        return sum(len(rows) for rows in self._buffer.values())

    def emission(self) -> Emission[K, V] | None:
        """What to append now; None if there is nothing to say yet. The same until feedback comes."""
        first = min([self.input_frontier, *(time for time in self._buffer if time < self.input_frontier)])
        if first < self.input_frontier and rule(first, self.upper) is Rule.EMIT:
            return Emission(first, first + 1, tuple(self._resolved(self._buffer[first])))
        if first > self.upper:
            return Emission(self.upper, first)  # nothing happened before it
        return None

    def _resolved(self, rows: Mapping[K, V | None]) -> Iterable[tuple[K, V, int]]:
        """The changes that give some keys new rows, and none where a key keeps its row."""
        for key, row in rows.items():
            before = self._state.get(key)
            if before == row:
                continue
            if before is not None:
                yield key, before, -1
            if row is not None:
                yield key, row, 1
