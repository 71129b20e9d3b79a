"""A shard on every kind of store: append, read, follow, hold back, let go."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pyarrow as pa
import pytest

from penstock.errors import (
    BoundsError,
    DamagedError,
    FencedError,
    LeaseExpiredError,
    ShardError,
    StorageError,
    TimeGoneError,
)
from penstock.shard.keeping import Keeper
from penstock.shard.reader import ShardReader
from penstock.shard.shard import Shard
from penstock.shard.state import CLOSED, STATE, Fence
from penstock.shard.stores.directory import Directory
from penstock.shard.stores.place import Place, PlaceConfig
from penstock.shard.writer import Outcome, ShardWriter
from tests.servers import BUCKET, KEY, SECRET, free_port
from tests.shard.rows import at_times, changes, counted, opened, ticking
from tests.shard.stores import Memory

# -- appending ----------------------------------------------------------------------------------


def test_append_and_read(place: Place) -> None:
    writer = ShardWriter(opened(place), "test")
    assert writer.compare_and_append(changes((1, "a", 0, 1), (2, "b", 0, 1)), 0, 1) == Outcome(True, 1)
    assert writer.compare_and_append(changes((1, "a", 1, -1), (1, "c", 1, 1)), 1, 2) == Outcome(True, 2)
    shard = opened(place)
    assert (shard.since, shard.upper) == (0, 2)
    assert counted(shard.snapshot(0)) == {(1, "a"): 1, (2, "b"): 1}
    assert counted(shard.snapshot(1)) == {(1, "c"): 1, (2, "b"): 1}
    assert at_times(shard.changes(1, 2)) == [(1, "a", 1, -1), (1, "c", 1, 1)]


def test_an_append_that_comes_second_does_not_count(place: Place) -> None:
    first, second = (ShardWriter(opened(place), name) for name in ("first", "second"))
    assert first.compare_and_append(changes((1, "a", 0, 1)), 0, 1).appended
    assert second.compare_and_append(changes((1, "a", 0, 1)), 0, 1) == Outcome(False, 1)
    assert first.compare_and_append(None, 1, 7).appended
    assert second.compare_and_append(changes((2, "b", 1, 1)), 1, 2) == Outcome(False, 7)
    assert counted(opened(place).snapshot(6)) == {(1, "a"): 1}
    assert len(place.blobs.keys("s/parts")) == 1, "the loser deletes what it uploaded"


def test_who_knows_an_old_state_only_is_not_refused_for_it(place: Place) -> None:
    first, second = (ShardWriter(opened(place), name) for name in ("first", "second"))
    for time in range(5):
        assert first.compare_and_append(None, time, time + 1).appended
    assert second.shard.machine.state.upper == 0
    assert second.compare_and_append(changes((1, "a", 5, 1)), 5, 6) == Outcome(True, 6)


def test_other_changes_for_the_same_time_are_noticed(place: Place) -> None:
    first, second = (ShardWriter(opened(place), name) for name in ("first", "second"))
    first.compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    assert second.compare_and_append(changes((1, "b", 0, 1)), 0, 1) == Outcome(False, 1, diverged=True)
    first.compare_and_append(changes((2, "x", 1, 1), (3, "y", 1, 1)), 1, 2)
    same = changes((3, "y", 1, 1), (2, "x", 1, 3), (2, "x", 1, -2))  # in another order, and not added up
    assert second.compare_and_append(same, 1, 2) == Outcome(False, 2)
    first.compare_and_append(None, 2, 3)
    assert second.compare_and_append(changes((1, "b", 2, 1)), 2, 3).diverged


def test_only_the_upper_moves(place: Place) -> None:
    writer = ShardWriter(opened(place), "test")
    for time in range(20):
        assert writer.compare_and_append(None, time, time + 1).appended
    state = opened(place).machine.state
    assert (state.upper, len(state.batches), state.keys) == (20, 1, frozenset())


@pytest.mark.parametrize(
    ("rows", "lower", "upper"),
    [
        ((), 0, 0),
        ((), 3, 2),
        ((), -1, 2),
        ((), 0, CLOSED + 1),
        (((1, "a", 1, 1),), 0, 1),
        (((1, "a", 0, 1),), 1, 2),
    ],
)
def test_bounds_that_no_batch_can_have(
    tmp_path: Path, rows: tuple[tuple[int, str, int, int], ...], lower: int, upper: int
) -> None:
    writer = ShardWriter(opened(PlaceConfig(str(tmp_path)).opened()), "test")
    with pytest.raises(BoundsError, match="a batch from time"):
        writer.compare_and_append(changes(*rows), lower, upper)


def test_a_shard_that_is_closed(place: Place) -> None:
    shard = opened(place)
    writer = ShardWriter(shard, "test")
    writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    assert writer.compare_and_append(None, 1, CLOSED) == Outcome(True, CLOSED)
    assert shard.machine.state.closed
    assert writer.compare_and_append(changes((1, "b", 1, 1)), 1, 2) == Outcome(False, CLOSED)
    Keeper(shard, writer).keep()
    assert counted(opened(place).snapshot(shard.since)) == {(1, "a"): 1}


def test_several_writers_at_once(place: Place) -> None:
    """Each writes every time; together they write each once."""
    counts = [0, 0, 0]

    def write(index: int) -> None:
        writer = ShardWriter(opened(place), f"writer {index}")
        time = 0
        while time < 12:
            outcome = writer.compare_and_append(changes((time, f"v{time}", time, 1)), time, time + 1)
            assert not outcome.diverged
            counts[index] += outcome.appended
            time = outcome.upper
        writer.close()

    threads = [threading.Thread(target=write, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 12
    shard = opened(place)
    assert counted(shard.snapshot(11)) == {(time, f"v{time}"): 1 for time in range(12)}
    assert set(place.blobs.keys("s/parts")) == shard.machine.state.keys


def test_an_append_whose_answer_was_lost_counts_once() -> None:
    class Lossy(Memory):
        lost = 0

        def create(self, name: str, number: int, data: bytes) -> bool:
            done = super().create(name, number, data)
            if self.lost:
                self.lost -= 1
                raise ShardError("no answer", passing=True)
            return done

    store = Lossy()
    shard = opened(Place(store, store), patience=0.0)
    writer = ShardWriter(shard, "test")
    store.lost = 1
    with pytest.raises(ShardError, match="no answer"):
        writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    assert writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1) == Outcome(True, 1)
    assert counted(opened(Place(store, store)).snapshot(0)) == {(1, "a"): 1}
    assert len(store.objects) == 1


# -- generations --------------------------------------------------------------------------------


def test_an_earlier_generation_is_fenced(place: Place) -> None:
    shard = opened(place)
    old = ShardWriter(shard, "old")
    old.compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    opened(place).raise_fence(Fence(1, 1))
    with pytest.raises(FencedError, match="generation 1, epoch 1 took over"):
        old.compare_and_append(changes((1, "b", 1, 1)), 1, 2)
    with pytest.raises(FencedError):
        shard.raise_fence(Fence(0, 5))
    new = ShardWriter(opened(place), "new", Fence(1, 1))
    assert new.compare_and_append(changes((1, "c", 1, 1)), 1, 2).appended
    assert counted(opened(place).snapshot(1)) == {(1, "a"): 1, (1, "c"): 1}


# -- reading ------------------------------------------------------------------------------------


def test_follow(place: Place) -> None:
    writer = ShardWriter(opened(place), "writer")
    reader = ShardReader(opened(place), "reader")
    assert reader.listen(0).upper == 0
    for time in range(3):
        writer.compare_and_append(changes((time, "a", time, 1)), time, time + 1)
    found = reader.listen(0)
    assert (found.lower, found.upper) == (0, 3)
    assert at_times(found.changes) == [(time, "a", time, 1) for time in range(3)]
    assert reader.listen(3).upper == 3
    assert at_times(reader.listen(1, most=2).changes) == [(1, "a", 1, 1)]


def test_what_a_reader_holds_back_stays_as_it_was(place: Place) -> None:
    shard = opened(place)
    writer = ShardWriter(shard, "writer")
    keeper = Keeper(shard, writer)
    reader = ShardReader(opened(place), "reader")
    for time in range(20):
        rows = [(1, f"v{time}", time, 1), (1, f"v{time - 1}", time, -1)]
        writer.compare_and_append(changes(*rows[: 1 if time == 0 else 2]), time, time + 1)
    keeper.keep()
    assert shard.since == 0
    assert len(shard.machine.state.batches) < 8
    assert counted(reader.snapshot(4)) == {(1, "v4"): 1}
    assert at_times(reader.listen(5, most=6).changes) == [(1, "v4", 5, -1), (1, "v5", 5, 1)]
    reader.downgrade_since(9)
    reader.downgrade_since(3)  # it does not go back
    assert reader.since == 9
    for time in range(20, 30):
        writer.compare_and_append(changes((2, f"w{time}", time, 1)), time, time + 1)
    keeper.keep()
    assert shard.since == 9
    assert counted(reader.snapshot(9)) == {(1, "v9"): 1}
    assert at_times(reader.listen(10, most=11).changes) == [(1, "v10", 10, 1), (1, "v9", 10, -1)]
    with pytest.raises(TimeGoneError, match="from time 9 on"):
        shard.snapshot(8)
    with pytest.raises(TimeGoneError, match="from time 10 on"):
        shard.changes(9, 12)
    with pytest.raises(TimeGoneError):
        ShardReader(shard, "late", since=3)


def test_without_readers_a_shard_stays_as_small_as_its_rows(place: Place) -> None:
    shard = opened(place)
    writer = ShardWriter(shard, "writer")
    keeper = Keeper(shard, writer)
    for time in range(40):
        rows = [(1, f"v{time}", time, 1), (1, f"v{time - 1}", time, -1)]
        writer.compare_and_append(changes(*rows[: 1 if time == 0 else 2]), time, time + 1)
        keeper.keep()
    state = shard.machine.refresh()
    assert sum(batch.rows for batch in state.batches) < 16
    assert set(place.blobs.keys("s/parts")) == state.keys
    assert len(place.log.numbers("s")) < 16
    assert counted(opened(place).snapshot(39)) == {(1, "v39"): 1}


def test_a_time_that_is_not_complete_cannot_be_read(place: Place) -> None:
    with pytest.raises(BoundsError, match="complete to before time 0"):
        opened(place).snapshot(0)


# -- leases -------------------------------------------------------------------------------------


def test_a_reader_that_is_gone_holds_nothing_back(place: Place) -> None:
    shard = opened(place, lease=1e-9)
    writer = ShardWriter(shard, "writer")
    keeper = Keeper(shard, writer, clock=ticking())
    reader = ShardReader(opened(place), "reader")
    for time in range(10):
        writer.compare_and_append(changes((1, "a", time, 1)), time, time + 1)
    keeper.keep()
    assert shard.since == 0
    keeper.keep()  # the second look at a reader that has not moved
    keeper.keep()
    assert shard.since == 9
    with pytest.raises(LeaseExpiredError, match="begin again with a snapshot"):
        reader.listen(3)


def test_a_reader_that_is_away_keeps_times_and_no_objects(place: Place) -> None:
    """Else the state, which every append writes, would grow with all that is merged meanwhile."""
    shard = opened(place, lease=1e-9)
    writer = ShardWriter(shard, "test")
    keeper = Keeper(shard, writer, clock=ticking())
    away = ShardReader(opened(place), "away", 0, lease=3600)
    sizes = []
    for time in range(64):
        writer.compare_and_append(changes((time, "a", time, 1)), time, time + 1)
        keeper.keep()
        sizes.append(len(shard.machine.state.dropped))
    assert max(sizes) < 2 * 8, sizes
    assert len(place.blobs.keys("s/parts")) < 3 * 8
    assert shard.since == 0, "all times are there still"
    expected = [(time, "a", time, 1) for time in range(64)]
    assert at_times(away.listen(0).changes) == expected, "it knew an old state, whose objects are gone"


def test_a_writer_that_was_taken_for_gone_begins_again(place: Place) -> None:
    shard = opened(place, lease=1e-9)
    keeper = Keeper(shard, ShardWriter(shard, "keeper"), clock=ticking())
    writer = ShardWriter(opened(place), "writer")
    writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    before = writer.id
    keeper.keep()
    keeper.keep()
    assert not shard.machine.state.writers[before].live
    assert writer.compare_and_append(changes((1, "b", 1, 1)), 1, 2).appended
    assert writer.id != before
    assert counted(opened(place).snapshot(1)) == {(1, "a"): 1, (1, "b"): 1}


def test_what_a_lost_writer_uploaded_is_cleaned_up(place: Place) -> None:
    shard = opened(place, lease=1e-9)
    keeper = Keeper(shard, ShardWriter(shard, "keeper"), clock=ticking())
    lost = ShardWriter(opened(place), "lost")
    ((part, data),) = lost.encoded(changes((1, "a", 0, 1)), lost.id)
    place.blobs.put(part.key, data)
    keeper.keep()
    assert place.blobs.keys("s/parts") == [part.key], "it may still be appended"
    keeper.keep()
    keeper.keep()
    assert place.blobs.keys("s/parts") == []


def test_a_merge_of_one_who_was_taken_for_gone_does_not_count(place: Place) -> None:
    """What it put is anybody's to delete, also if it has registered anew meanwhile."""
    shard = opened(place, lease=1e-9)
    keeper = Keeper(shard, ShardWriter(shard, "keeper"), clock=ticking())
    slow = ShardWriter(opened(place), "slow")
    for time in range(2):
        slow.compare_and_append(changes((1, "a", time, 1)), time, time + 1)
    run = list(slow.shard.machine.state.batches)
    put = slow.shard.put

    def put_slowly(key: str, data: bytes) -> None:
        put(key, data)
        slow.shard.put = put  # type: ignore[method-assign]
        before = slow.id
        for _ in range(3):
            keeper.expel()
            keeper.beat()
        keeper.clean()
        assert slow.compare_and_append(None, 2, 3).appended
        assert slow.id != before

    slow.shard.put = put_slowly  # type: ignore[method-assign]
    with pytest.raises(LeaseExpiredError):
        slow.merge(run, slow.shard.changes(0, 2))
    assert counted(opened(place).snapshot(2)) == {(1, "a"): 2}


def test_a_merge_may_be_slower_than_idle_transactions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ShardWriter(opened(place), "writer")
    for time in range(8):
        writer.compare_and_append(changes((1, "a", time, 1)), time, time + 1)
    writer.compare_and_append(None, 8, 9)
    put = writer.shard.put

    def put_slowly(key: str, data: bytes) -> None:
        put(key, data)
        assert writer.compare_and_append(None, writer.shard.upper, writer.shard.upper + 1).appended

    monkeypatch.setattr(writer.shard, "put", put_slowly)
    Keeper(writer.shard, writer).merge()
    state = opened(place).machine.state
    assert [(batch.lower, batch.upper) for batch in state.batches] == [(0, 8), (8, 10)]
    assert counted(writer.shard.snapshot(9)) == {(1, "a"): 8}


def test_nothing_ends_the_signs_of_life(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = opened(place, lease=0.06)
    keeper = Keeper(shard, ShardWriter(shard, "keeper"))
    monkeypatch.setattr(keeper, "merge", lambda: 1 / 0)
    keeper.start()
    beats = shard.machine.state.writers[keeper.writer.id].beat if keeper.writer else 0
    deadline = monotonic() + 30
    while shard.machine.refresh().writers[keeper.writer.id if keeper.writer else ""].beat < beats + 3:
        assert monotonic() < deadline
    keeper.stop()


def test_a_long_upload_keeps_no_sign_of_life_waiting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.shard.writer.LONG_UPLOAD", 0)
    writer = ShardWriter(opened(place), "writer")
    keeper = Keeper(writer.shard, writer)
    put = writer.shard.put

    def put_slowly(key: str, data: bytes) -> None:
        beating = threading.Thread(target=keeper.beat)
        beating.start()
        beating.join(30)
        assert not beating.is_alive()
        put(key, data)

    monkeypatch.setattr(writer.shard, "put", put_slowly)
    assert writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1).appended
    assert counted(opened(place).snapshot(0)) == {(1, "a"): 1}


def test_those_who_give_signs_of_life_stay(place: Place) -> None:
    shard = opened(place, lease=1e-9)
    keeper = Keeper(shard, ShardWriter(shard, "keeper"), clock=ticking())
    other = opened(place)
    reader = ShardReader(other, "reader")
    others = Keeper(other, None, [reader], clock=ticking())
    for _ in range(4):
        keeper.keep()
        others.beat()
    assert reader.listen(0).upper == 0


# -- a place that is gone -----------------------------------------------------------------------


def emptied(place: Place, directory: Path) -> None:
    place.blobs.delete(place.blobs.keys("s"))
    shutil.rmtree(directory / "place", ignore_errors=True)


@pytest.mark.parametrize("config", ["directory", "bucket"], indirect=True)
def test_who_writes_to_a_shard_that_is_gone_is_told(place: Place, tmp_path: Path) -> None:
    """Else each of them would be the only one there, and win."""
    writers = [ShardWriter(opened(place, patience=0.05), name) for name in ("first", "second")]
    reader = ShardReader(opened(place, patience=0.05), "reader")
    assert writers[0].compare_and_append(changes((1, "a", 0, 1)), 0, 1).appended
    assert writers[1].compare_and_append(None, 1, 2).appended
    assert reader.listen(0).upper == 2
    emptied(place, tmp_path)
    for writer in writers:
        with pytest.raises(ShardError, match=r"the shard s in .* is gone: record \d+ is not there") as caught:
            writer.compare_and_append(changes((1, "b", 2, 1)), 2, 3)
        assert caught.value.passing
    with pytest.raises(ShardError, match="mount it"):
        reader.listen(2)
    assert not place.log.numbers("s")


@pytest.mark.parametrize("config", ["directory", "bucket"], indirect=True)
def test_a_shard_that_is_made_anew_is_another_one(place: Place, tmp_path: Path) -> None:
    writer = ShardWriter(opened(place), "writer")
    for time in range(5):
        writer.compare_and_append(None, time, time + 1)
    emptied(place, tmp_path)
    assert opened(place).upper == 0
    with pytest.raises(ShardError, match="made anew"):
        writer.compare_and_append(None, 5, 6)
    assert opened(place).upper == 0


def test_an_older_copy_is_not_the_shard(tmp_path: Path) -> None:
    place = PlaceConfig(str(tmp_path / "place")).opened()
    writer = ShardWriter(opened(place, patience=0.05), "writer")
    shutil.copytree(tmp_path / "place", tmp_path / "older")
    for time in range(3):
        writer.compare_and_append(None, time, time + 1)
    shutil.move(tmp_path / "place", tmp_path / "away")
    shutil.move(tmp_path / "older", tmp_path / "place")
    with pytest.raises(ShardError, match="is gone"):
        writer.compare_and_append(None, 3, 4)
    shutil.rmtree(tmp_path / "place")
    shutil.move(tmp_path / "away", tmp_path / "place")
    assert writer.compare_and_append(None, 3, 4).appended


def test_who_lists_late_or_while_others_trim_loses_nothing() -> None:
    """A list that does not have what was just created, or that missed what came and went meanwhile."""

    class Lagging(Memory):
        hidden = 0
        missed = 0

        def numbers(self, name: str, after: int = -1) -> Sequence[int]:
            found = super().numbers(name)
            if self.missed:
                self.missed -= 1
                return ()
            return [number for number in found[: len(found) - self.hidden] if number > after]

    store = Lagging()
    place = Place(store, store)
    first, second = (ShardWriter(opened(place, patience=0.0), name) for name in ("first", "second"))
    for hidden in range(4):
        store.hidden = hidden
        first.shard.machine.refresh()
    store.hidden = 0
    for time in range(20):
        first.compare_and_append(None, time, time + 1)
    first.shard.machine.trim()
    assert store.numbers("s")[0] > second.shard.machine.number
    store.missed = 1
    assert second.shard.machine.refresh().upper == 20


# -- what is wrong ------------------------------------------------------------------------------


def test_other_columns_are_refused(place: Place) -> None:
    opened(place)
    with pytest.raises(
        ShardError, match=r"has other columns: key int64, value string; this program has k int32"
    ):
        Shard.open(place, "s", pa.schema([("k", pa.int32())]))


def test_a_shard_that_is_not_there(place: Place) -> None:
    with pytest.raises(ShardError, match="there is no shard other"):
        Shard.open(place, "other")


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    place = PlaceConfig(str(tmp_path)).opened()
    ShardWriter(opened(place), "test").compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    (path,) = tmp_path.glob("s/parts/*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=f"{path.name} is damaged: expected"):
        opened(place).snapshot(0)
    path.unlink()
    with pytest.raises(DamagedError, match=f"{path.name} is missing"):
        opened(place).snapshot(0)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    place = PlaceConfig(str(tmp_path)).opened()
    opened(place)
    path = tmp_path / "s/log/0000000000000000"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedError, match="record 0"):
        opened(place)
    path.write_bytes(
        STATE.encode(replace(ShardWriter(opened(Place(Memory(), Memory())), "x").shard.machine.state))
    )
    data = path.read_bytes().replace(b'"version": 1', b'"version": 9')
    path.write_bytes(data)
    with pytest.raises(StorageError, match="format version 9"):
        opened(place)


def test_a_store_that_ignores_conditions_is_refused(strict_s3: str) -> None:
    config = PlaceConfig(f"s3://{BUCKET}/x", endpoint=strict_s3, access_key=KEY, secret_key=SECRET)
    with pytest.raises(ShardError, match="ignores conditional writes"):
        opened(config.opened())


def test_such_a_store_will_do_with_a_log_elsewhere(strict_s3: str, tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/log.db"
    config = PlaceConfig(f"s3://{BUCKET}/y", log, endpoint=strict_s3, access_key=KEY, secret_key=SECRET)
    place = config.opened()
    writer = ShardWriter(opened(place), "test")
    assert writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1).appended
    assert counted(opened(place).snapshot(0)) == {(1, "a"): 1}
    place.close()


def test_a_store_that_does_not_answer_ends_in_a_bounded_time() -> None:
    config = PlaceConfig("/nowhere", log_uri=f"postgresql://x@127.0.0.1:{free_port()}/x")
    with pytest.raises(ShardError, match="Check that the database can be reached") as caught:
        opened(config.opened(), patience=0.1)
    assert caught.value.passing


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PlaceConfig("gs://bucket"), "is no place for shards"),
        (PlaceConfig("s3://"), "names no bucket"),
        (PlaceConfig("file://host/path"), "names a host"),
        (PlaceConfig("/tmp", log_uri="mysql://x"), "no database of kind 'mysql'"),
        (PlaceConfig("/tmp", log_uri="x"), "cannot be understood"),
    ],
)
def test_a_place_that_is_none(config: PlaceConfig, message: str) -> None:
    with pytest.raises(ShardError, match=message):
        config.opened()


def test_a_record_that_was_trimmed_means_nothing_when_it_comes_late(tmp_path: Path) -> None:
    """A writer that was stopped while it created a record: by now that number is long trimmed."""
    store = Directory(tmp_path)
    place = Place(store, store)
    writer = ShardWriter(opened(place), "writer")
    late = ShardWriter(opened(place), "late")
    for time in range(20):
        writer.compare_and_append(None, time, time + 1)
    writer.shard.machine.trim()
    assert not store.create("s", late.shard.machine.number + 1, b"what it was about to write")
    (tmp_path / f"s/log/{late.shard.machine.number + 1:016}").write_bytes(
        b"all others were trimmed meanwhile"
    )
    assert late.compare_and_append(None, 2, 3) == Outcome(False, 20)
    assert counted(opened(place).snapshot(19)) == {}
    for time in range(20, 30):
        writer.compare_and_append(None, time, time + 1)
    writer.shard.machine.trim()
    assert store.numbers("s")[0] > 20


def test_the_newest_record_is_never_trimmed(place: Place) -> None:
    """The next one is created behind it."""
    for number in range(3):
        assert place.log.create("t", number, b"")
    place.log.trim("t", 10)
    assert list(place.log.numbers("t")) == [2]
    assert place.log.create("t", 3, b"")
