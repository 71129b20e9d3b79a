"""Several writers and readers on a store in which any call may fail, or be carried out and seem to fail, or
be carried out much later; leases expire all the time. Whatever happens, the end is the same."""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

from penstock.errors import LeaseExpiredError, ShardError
from penstock.shard import keeping, machine
from penstock.shard.keeping import Keeper
from penstock.shard.reader import ShardReader
from penstock.shard.shard import Shard
from penstock.shard.stores.place import Place
from penstock.shard.writer import ShardWriter
from tests.shard.rows import ticking
from tests.shard.stores import Memory, Unreliable

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
TIMES = 14
SEEDS = 40
MANY_SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "2000"))

Rows = Counter[tuple[int, str]]


def changes_at(time: int) -> list[tuple[int, str, int]]:
    """What every writer computes: keys move from value to value, and some times bring nothing."""
    if time % 5 == 3:
        return []
    found = [(time % 4, f"v{time}", 1)]
    earlier = [t for t in range(time) if t % 5 != 3 and t % 4 == time % 4]
    return found + [(time % 4, f"v{t}", -1) for t in earlier[-1:]]


@cache
def rows_at(time: int) -> Rows:
    rows: Rows = Counter()
    for t in range(time + 1):
        for key, value, weight in changes_at(t):
            rows[key, value] += weight
    return +rows


def table_of(time: int) -> pa.Table | None:
    found = changes_at(time)
    if not found:
        return None
    keys, values, weights = zip(*found, strict=True)
    columns = {"key": keys, "value": values, "_time": [time] * len(found), "_weight": weights}
    return pa.table(columns, pa.schema([*SCHEMA, ("_time", pa.int64()), ("_weight", pa.int64())]))


def added(rows: Rows, table: pa.Table) -> None:
    for row in table.to_pylist():
        rows[row["key"], row["value"]] += row["_weight"]


class Actor(ABC):
    """Does one thing after another, and begins again where it was after a failure."""

    def __init__(self, open_shard: Callable[[], Shard]) -> None:
        self._open = open_shard
        self._shard: Shard | None = None
        self.busy = False

    @property
    def shard(self) -> Shard:
        if self._shard is None:
            self._shard = self._open()
        return self._shard

    def step(self) -> None:
        self.busy = True
        try:
            self.act()
        except ShardError as error:
            if not error.passing:
                raise
        finally:
            self.busy = False

    @abstractmethod
    def act(self) -> None:
        """Do one thing."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether it has nothing left to do."""

    @abstractmethod
    def close(self) -> None:
        """Be gone, in order."""


class WriterActor(Actor):
    """Appends one time after the other; what somebody else appended it drops."""

    time = 0
    writer: ShardWriter | None = None
    appended = 0

    def act(self) -> None:
        if self.writer is None:
            self.writer = ShardWriter(self.shard, "test")
        before = self.shard.machine.state.upper
        outcome = self.writer.compare_and_append(table_of(self.time), self.time, self.time + 1)
        assert not outcome.diverged
        assert outcome.upper > self.time >= 0
        assert outcome.upper >= before, "the upper went back"
        self.appended += outcome.appended
        self.time = outcome.upper

    @property
    def done(self) -> bool:
        return self.time >= TIMES

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class KeeperActor(Actor):
    """Merges and cleans up after everybody, and now and then takes all others for gone."""

    keeper: Keeper | None = None
    done = True

    def __init__(self, open_shard: Callable[[], Shard], chance: random.Random) -> None:
        super().__init__(open_shard)
        self._chance = chance

    def act(self) -> None:
        if self.keeper is None:
            self.keeper = Keeper(self.shard, ShardWriter(self.shard, "keeper"), clock=ticking())
        self.shard.lease = 1e-9 if self._chance.random() < 0.2 else 1e9
        try:
            self.keeper.keep()
        except LeaseExpiredError:
            self.keeper = None

    def close(self) -> None:
        if self.keeper is not None and self.keeper.writer is not None:
            self.keeper.writer.close()


class ReaderActor(Actor):
    """Adds up what it reads, and begins again with a snapshot if it was taken for gone."""

    reader: ShardReader | None = None
    frontier = 0
    rows: Rows

    def act(self) -> None:
        if self.reader is None:
            self.reader = ShardReader(self.shard, "test")
            self.frontier, self.rows = 0, Counter()
        try:
            self._read(self.reader)
        except LeaseExpiredError:
            self.reader = None

    def _read(self, reader: ShardReader) -> None:
        if self.frontier == 0 and reader.since > 0:
            rows: Rows = Counter()
            added(rows, reader.snapshot(reader.since))
            self.rows, self.frontier = rows, reader.since + 1
        else:
            progress = reader.listen(self.frontier)
            added(self.rows, progress.changes)
            self.frontier = progress.upper
        assert +self.rows == rows_at(self.frontier - 1), "a change was lost, or came twice"
        assert not -self.rows
        reader.downgrade_since(self.frontier - 1)

    @property
    def done(self) -> bool:
        return self.frontier >= TIMES

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()


def play(seed: int) -> None:
    chance = random.Random(seed)
    store = Memory()
    depth = 0

    def meanwhile() -> None:
        nonlocal depth
        free = [actor for actor in actors if not actor.busy and (actor is keeper or not actor.done)]
        if free and depth < 3 and chance.random() < 0.15:
            depth += 1
            try:
                chance.choice(free).step()
            finally:
                depth -= 1

    unreliable = Unreliable(store, chance, meanwhile)
    place = Place(unreliable, unreliable)

    def open_shard() -> Shard:
        return Shard.open(place, "s", SCHEMA, patience=0.0, lease=1e-9)

    writers = [WriterActor(open_shard) for _ in range(3)]
    readers = [ReaderActor(open_shard) for _ in range(2)]
    keeper = KeeperActor(open_shard, chance)
    actors: list[Actor] = [*writers, keeper, *readers]
    for _ in range(100_000):
        if all(actor.done for actor in actors):
            break
        chance.choice([actor for actor in actors if not actor.done] * 3 + [keeper]).step()
    else:
        pytest.fail("it does not come to an end")

    unreliable.settle()
    for actor in actors:
        actor.close()
    shard = open_shard()
    assert shard.upper == TIMES
    assert sum(writer.appended for writer in writers) <= TIMES
    found: Rows = Counter()
    added(found, shard.snapshot(TIMES - 1))
    assert found == rows_at(TIMES - 1)
    last = Keeper(shard, ShardWriter(shard, "last"), clock=ticking())
    last.keep()
    last.keep()
    state = shard.machine.refresh()
    assert not state.dropped
    assert set(store.objects) == state.keys, "something was left behind, or is missing"
    assert len(state.batches) < 16


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(machine, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(machine, "KEPT_RECORDS", 1)
    monkeypatch.setattr(keeping, "FAN_IN", 3)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_end_is_the_same(seed: int) -> None:
    play(seed)


@pytest.mark.slow(minutes=5)
@pytest.mark.timeout(3600)
def test_the_end_is_the_same_for_thousands_of_seeds() -> None:
    for seed in range(SEEDS, MANY_SEEDS):
        try:
            play(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
