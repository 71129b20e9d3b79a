"""Writers that upsert into one shard: in any order, taken for gone, stopped, killed, on bad stores."""

from __future__ import annotations

import math
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import BadRowError, BoundsError, DivergedError, FencedError, ShardError
from penstock.shard import keeping, known, machine
from penstock.shard.keeping import Keeper
from penstock.shard.known import hashes_of
from penstock.shard.reader import ShardReader
from penstock.shard.shard import Shard
from penstock.shard.state import CLOSED, Fence
from penstock.shard.stores.place import Place, PlaceConfig
from penstock.shard.upserting import UpsertWriter
from penstock.shard.writer import ShardWriter
from tests.crash import upsert as source
from tests.crash.upsert import buffer, changes_until
from tests.shard.processes import Process, end_all, stop_without_lock, upper, wait_for
from tests.shard.rows import at_times, changes, counted, opened, ticking
from tests.shard.stores import Memory, Unreliable
from tests.shard.test_unreliable_store import Actor, KeeperActor

UNTIL = 30


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Place]:
    """A directory, where the kind of place does not matter."""
    found = PlaceConfig(str(tmp_path / "place")).opened()
    yield found
    found.close()


def upserting(place: Place, purpose: str = "test") -> UpsertWriter:
    return UpsertWriter(opened(place), ["key"], purpose)


def rows(*found: tuple[int, str | None]) -> pa.Table:
    keys, values = zip(*found, strict=True)
    return pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.string())})


def keys(*found: int) -> pa.Table:
    return pa.table({"key": pa.array(found, pa.int64())})


def taken_for_gone(place: Place) -> None:
    """All readers and writers but one that waits for an hour, and nothing is left that may be let go of."""
    shard = opened(place, lease=1e-9)
    keeper = Keeper(shard, ShardWriter(shard, "keeper"), clock=ticking())
    own = keeper.writer
    assert own is not None
    while shard.machine.refresh().readers or any(
        writer.live for id_, writer in shard.machine.state.writers.items() if id_ != own.id
    ):
        keeper.keep()
    keeper.keep()
    own.close()


def refuse_litter(place: Place) -> None:
    """The store has what the shard has, and nothing else, once the dead are known as dead."""
    taken_for_gone(place)
    state = opened(place).machine.state
    assert not state.dropped
    assert set(place.blobs.keys("s/parts")) == state.keys


# -- in any order -------------------------------------------------------------------------------


def run_by_one(place: Place, until: int) -> list[tuple[int, str, int, int]]:
    """What a single writer makes of the source, time after time."""
    shard = Shard.open(place, "single", source.SCHEMA)
    with UpsertWriter(shard, ["key"], "single") as writer:
        for time_ in range(until):
            buffer(writer, time_)
            writer.flush()
        return at_times(shard.changes(0, until))


def test_two_writers_in_any_order(place: Place) -> None:
    chance, until = random.Random(17), 16
    audit = ShardReader(opened(place), "audit", 0)
    writers = [upserting(place, name) for name in ("first", "second")]
    following = [0, 0]
    while min(writer.upper for writer in writers) < until:
        index = chance.randrange(2)
        writer, next_ = writers[index], following[index]
        what = chance.random()
        if what < 0.03:  # it dies, and another one begins where it must
            writer._keeper.stop()
            writers[index] = upserting(place, "again")
            following[index] = writers[index].resume_upper
        elif what < 0.6 and next_ < until:
            buffer(writer, next_)
            following[index] += 1
        else:
            writer.step()
    found = at_times(audit.listen(0).changes)
    assert found == run_by_one(place, until) == changes_until(until)
    for writer in writers:
        writer.close()
    audit.close()
    refuse_litter(place)


def test_what_a_peer_appended_is_dropped_and_what_comes_is_held(local: Place) -> None:
    with upserting(local, "slow") as slow, upserting(local, "fast") as fast:
        fast.buffer(0, rows((1, "a"), (2, "b")))
        fast.buffer(1, deleted_keys=keys(1))
        fast.seal(2)
        fast.flush()
        slow.buffer(0, rows((1, "a"), (2, "b")))
        slow.buffer(3, rows((2, "c")))
        assert slow.step(), "it follows"
        assert (slow.upper, slow.frontier) == (2, 0)
        slow.buffer(1, deleted_keys=keys(1))
        slow.seal(4)
        slow.flush()
        assert (slow.upper, fast.upper) == (4, 2)
        assert at_times(opened(local).changes(2, 4)) == [(2, "b", 3, -1), (2, "c", 3, 1)]


def test_what_comes_later_counts(local: Place) -> None:
    with upserting(local) as writer:
        writer.buffer(0, rows((1, "a"), (1, "b"), (2, "c"), (3, "d")), keys(1))
        writer.buffer(0, rows((2, "e")))
        writer.buffer(0, None, keys(3, 4))
        assert not writer.step(), "more of time 0 may come"
        writer.seal(1)
        assert writer.step()
        assert not writer.step()
        assert counted(opened(local).snapshot(0)) == {(1, "b"): 1, (2, "e"): 1}


def test_a_source_that_has_ended(place: Place) -> None:
    with upserting(place) as writer:
        writer.buffer(0, rows((1, "a")))
        writer.seal(CLOSED)
        writer.flush()
        assert writer.upper == CLOSED
    assert opened(place).machine.state.closed
    with upserting(place) as late:
        assert late.resume_upper == CLOSED
        late.buffer(0, rows((1, "a")))
        late.seal(CLOSED)
        late.flush()
        assert not late.step()
    shard = opened(place)
    assert counted(shard.snapshot(shard.machine.state.last)) == {(1, "a"): 1}


# -- taken for gone -----------------------------------------------------------------------------


def test_one_that_was_taken_for_gone_begins_anew(place: Place) -> None:
    slow = upserting(place, "slow")
    for time_ in range(6):
        buffer(slow, time_)
    slow.flush()
    for time_ in range(6, 16):
        buffer(slow, time_)
    taken_for_gone(place)
    with upserting(place, "fast") as fast:
        for time_ in range(6, 12):
            buffer(fast, time_)
        fast.flush()
    taken_for_gone(place)
    assert opened(place).since > slow.upper, "what it would have listened to is merged"
    assert slow.step()
    assert slow.upper == 13, "it took in what is there, and appended what comes next"
    slow.flush()
    assert at_times(opened(place).changes(12, 16)) == [row for row in changes_until(16) if row[2] >= 12]
    slow.close()
    refuse_litter(place)


def test_what_it_has_seen_is_let_go_of(local: Place) -> None:
    with upserting(local) as writer:
        for time_ in range(10):
            buffer(writer, time_)
        writer.flush()
        writer._keeper.keep()
        assert opened(local).since == 9


def test_who_is_fenced_is_told(local: Place) -> None:
    with upserting(local) as writer:
        opened(local).raise_fence(Fence(1))
        buffer(writer, 0)
        with pytest.raises(FencedError, match="generation 1"):
            writer.step()
    with pytest.raises(FencedError):
        upserting(local)


# -- a store that fails -------------------------------------------------------------------------


class UpsertActor(Actor):
    """Reads, appends, and dies now and then."""

    writer: UpsertWriter | None = None
    next = 0
    until = 14

    def __init__(self, open_shard: Callable[[], Shard], chance: random.Random) -> None:
        super().__init__(open_shard)
        self._chance = chance

    def act(self) -> None:
        if self._chance.random() < 0.02:
            self.writer = self._shard = None
        if self.writer is None:
            self.writer = UpsertWriter(self.shard, ["key"], "test")
            self.next = self.writer.resume_upper
        if self.next < self.until and self._chance.random() < 0.6:
            buffer(self.writer, self.next)
            self.next += 1
        else:
            self.writer.step()

    @property
    def done(self) -> bool:
        return self.writer is not None and self.writer.upper >= self.until

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


@pytest.mark.parametrize("seed", range(20))
def test_the_end_is_the_same_on_a_store_that_fails(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any call fails, or is carried out late; all others are taken for gone, between any two calls."""
    monkeypatch.setattr(machine, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(machine, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(keeping, "FAN_IN", 3)
    monkeypatch.setattr(known, "_SLACK", 0)
    monkeypatch.setattr(known, "_TABLE", 1)
    monkeypatch.setattr(Keeper, "start", lambda _: None)  # whose thread no seed would repeat
    chance, store, depth = random.Random(seed), Memory(), 0

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
        return Shard.open(place, "s", source.SCHEMA, patience=0.0, lease=1e-9)

    actors: list[Actor] = []
    audit = ShardReader(Shard.open(Place(store, store), "s", source.SCHEMA), "audit", 0, lease=1e12)
    keeper = KeeperActor(open_shard, chance)
    actors = [*(UpsertActor(open_shard, chance) for _ in range(3)), keeper]
    for _ in range(100_000):
        if all(actor.done for actor in actors):
            break
        chance.choice([actor for actor in actors if not actor.done] * 3 + [keeper]).step()
    else:
        pytest.fail("it does not come to an end")
    unreliable.settle()
    for actor in actors:
        actor.close()
    assert at_times(audit.listen(0).changes) == changes_until(UpsertActor.until)
    audit.close()
    refuse_litter(Place(store, store))


# -- processes ----------------------------------------------------------------------------------


@pytest.fixture
def _processes() -> Iterator[None]:
    yield
    end_all()


def audited(config: PlaceConfig) -> tuple[Place, ShardReader]:
    """A reader for which all times are kept apart, before anybody writes."""
    place = config.opened()
    return place, ShardReader(opened(place), "audit", 0, lease=3600.0)


def check(place: Place, audit: ShardReader) -> None:
    """Each time is as a single writer's, and nothing else is in the store."""
    progress = audit.listen(0)
    assert progress.upper == UNTIL
    assert at_times(progress.changes) == changes_until(UNTIL)
    audit.close()
    refuse_litter(place)
    place.close()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def live_writers(place: Place) -> Sequence[str]:
    return [id_ for id_, writer in opened(place).machine.state.writers.items() if writer.live]


def ready(config: PlaceConfig, *failpoints: str) -> list[Process]:
    """Processes that begin when they are told to, each with a failpoint or none."""
    found = [Process("upsert", config, UNTIL, failpoint) for failpoint in failpoints]
    for process in found:
        process.wait_until_ready()
    return found


@pytest.mark.usefixtures("_processes")
def test_one_is_stopped_while_the_other_runs_ahead(config: PlaceConfig) -> None:
    place, audit = audited(config)
    first, second = ready(config, "", "")
    first.go()
    wait_for(config, 2)
    (stopped,) = live_writers(place)
    second.go()
    eventually(lambda: len(live_writers(place)) == 2)
    stop_without_lock(first, config)
    wait_for(config, min(upper(config) + 10, UNTIL))
    eventually(lambda: stopped not in live_writers(place))
    first.signal(signal.SIGCONT)
    wait_for(config, UNTIL)
    for process in (first, second):
        process.ended()
        assert process.code == 0
    check(place, audit)


@pytest.mark.usefixtures("_processes")
@pytest.mark.parametrize("config", ["directory"], indirect=True)
@pytest.mark.parametrize("failpoint", ["shard.uploaded:3", "shard.appended:3"])
def test_one_is_killed_and_started_again(config: PlaceConfig, failpoint: str) -> None:
    """Between the upload and the append, and between the append and its answer."""
    place, audit = audited(config)
    killed, other, again = ready(config, failpoint, "", "")
    killed.go()
    wait_for(config, 1)
    other.go()
    killed.ended()
    assert killed.code == -signal.SIGKILL, "it did not get there"
    again.go()
    for process in (other, again):
        process.ended()
        assert process.code == 0
    check(place, audit)


# -- values -------------------------------------------------------------------------------------

VALUES = pa.schema(
    [
        ("place", pa.string()),
        ("at", pa.timestamp("us", tz="Europe/Berlin")),
        ("heat", pa.float64()),
        ("more", pa.list_(pa.struct([("a", pa.float32()), ("b", pa.date32())]))),
    ]
)
LATE = 1 << 61
"""Microseconds: a time that Python has no date for."""


def value(
    place: str = "p", at: int = 0, heat: float | None = None, more: Sequence[object] | None = None
) -> pa.Table:
    columns = [[place], pa.array([at], pa.int64()).cast(VALUES.field("at").type), [heat], [more]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, VALUES, strict=True)], schema=VALUES)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (value(), value(), False),
        (value(heat=math.nan), value(heat=-math.nan), False),
        (value(heat=0.0), value(heat=-0.0), False),
        (value(heat=None), value(heat=0.0), True),
        (value(heat=None), value(heat=math.nan), True),
        (value(heat=1.0), value(heat=math.nextafter(1.0, 2.0)), True),
        (value(more=[]), value(more=None), True),
        (value(more=[{"a": math.nan, "b": None}]), value(more=[{"a": math.nan, "b": None}]), False),
        (value(more=[{"a": 1.0, "b": None}]), value(more=[None]), True),
        (value(at=LATE), value(at=LATE, heat=1.0), True),
        (value(at=LATE), value(at=LATE), False),
    ],
)
def test_a_row_is_compared_as_a_whole(local: Place, before: pa.Table, after: pa.Table, changed: bool) -> None:
    shard = Shard.open(local, "values", VALUES)
    with UpsertWriter(shard, ["place", "at"], "test") as writer:
        writer.buffer(0, before)
        writer.buffer(1, after)
        writer.seal(2)
        writer.flush()
        assert hashes_of(shard.changes(0, 1), VALUES.names) == hashes_of(before, VALUES.names)
        found = shard.changes(1, 2)
        assert sorted(found.column("_weight").to_pylist()) == ([-1, 1] if changed else [])
    with UpsertWriter(shard, ["place", "at"], "test") as writer:
        writer.buffer(2, deleted_keys=after.select(["at", "place"]))
        writer.seal(3)
        writer.flush()
        assert shard.snapshot(2).num_rows == 0


def test_keys_are_told_apart_by_all_their_values(local: Place) -> None:
    """Two instants of one hour that comes twice on the clocks of Berlin; NaN and NaN."""
    hour = 1_698_537_600_000_000 - 5_400_000_000  # 2023-10-29, half past two in summer
    shard = Shard.open(local, "values", VALUES)
    with UpsertWriter(shard, ["at", "heat"], "test") as writer:
        writer.buffer(0, pa.concat_tables([value("a", hour, 1.0), value("b", hour + 3_600_000_000, 1.0)]))
        writer.buffer(0, pa.concat_tables([value("c", heat=math.nan), value("d", heat=math.nan)]))
        writer.seal(1)
        writer.flush()
        assert sorted(shard.snapshot(0).column("place").to_pylist()) == ["a", "b", "d"]


def test_rows_that_do_not_fit(local: Place) -> None:
    with upserting(local) as writer:
        for call, message in [
            (lambda: writer.buffer(0, rows((1, "a"), (None, "b"))), "row 1: 'key' is a key column.*NULL"),
            (lambda: writer.buffer(0, rows((1, "a")), keys(2, 3, None)), "row 2: 'key' is a key column"),
            (lambda: writer.buffer(0, keys(1)), "the column 'value' is missing.*have: key"),
            (lambda: writer.buffer(0, pa.table({"key": ["x"], "value": ["y"]})), "do not fit"),
            (lambda: writer.buffer(0, pa.table({"key": [[1]], "value": ["y"]})), "do not fit"),
        ]:
            with pytest.raises(BadRowError, match=message):
                call()
        writer.buffer(0, pa.table({"value": pa.array(["a"]).dictionary_encode(), "key": pa.array([1.0])}))
        writer.buffer(0, rows((2, None)))
        writer.seal(1)
        writer.flush()
        assert counted(opened(local).snapshot(0)) == {(1, "a"): 1, (2, None): 1}
        for call in (
            lambda: writer.buffer(0, rows((1, "b"))),
            lambda: writer.buffer(CLOSED, rows((1, "b"))),
            lambda: writer.seal(CLOSED + 1),
        ):
            with pytest.raises(BoundsError, match=r"sealed|no time"):
                call()


@pytest.mark.parametrize("key_columns", [[], ["id"], ["key", "id"]])
def test_keys_that_are_no_columns(local: Place, key_columns: list[str]) -> None:
    with pytest.raises(ShardError, match="name at least one of key, value"):
        UpsertWriter(opened(local), key_columns, "test")
    assert not opened(local).machine.state.writers


# -- not by key ---------------------------------------------------------------------------------


def test_writers_that_were_given_different_rows(local: Place) -> None:
    with upserting(local, "first") as first, upserting(local, "second") as second:
        for writer, text in ((first, "a"), (second, "b")):
            writer.buffer(0, rows((1, text)))
            writer.seal(1)
        # Both have looked, and nothing is there.
        emissions = [writer._operator.emission() for writer in (first, second)]
        assert all(emission is not None for emission in emissions)
        first.step()
        second._follow = lambda: None  # type: ignore[method-assign]
        with pytest.raises(DivergedError, match=r"to before 1.*than second would"):
            second.step()
    assert counted(opened(local).snapshot(0)) == {(1, "a"): 1}


@pytest.mark.parametrize("wrong", [(1, "b"), (1, "a")])
def test_another_one_writes_without_the_key(local: Place, wrong: tuple[int, str]) -> None:
    with upserting(local) as writer:
        writer.buffer(0, rows((1, "a"), (2, "x")))
        writer.seal(1)
        writer.flush()
        other = ShardWriter(opened(local), "other")
        other.compare_and_append(changes((*wrong, 1, 1)), 1, 2)
        other.close()
        with pytest.raises(DivergedError, match="several rows with key = 1"):
            writer.step()
    with pytest.raises(DivergedError, match="several rows with key = 1"):
        upserting(local)
    assert not live_writers(local), "one that refuses to begin is not waited for"


# -- memory -------------------------------------------------------------------------------------


def test_what_is_taken_back_is_forgotten(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_SLACK", 0)
    monkeypatch.setattr(known, "_TABLE", 1)
    with upserting(local) as writer:
        writer.buffer(0, rows(*((key, "still here") for key in range(20))))
        writer.buffer(60, rows((30, "held")), keys(0))
        for time_ in range(60):
            writer.buffer(time_, rows(*((key, f"v{time_}") for key in range(20, 30))))
            writer.seal(time_ + 1)
            writer.flush()
            assert len(writer._rows._places) <= writer._rows._size <= 2 * 32
        writer.seal(61)
        writer.flush()
        expected = dict.fromkeys(range(1, 20), "still here") | dict.fromkeys(range(20, 30), "v59")
        assert counted(opened(local).snapshot(60)) == dict.fromkeys([*expected.items(), (30, "held")], 1)
