"""A new generation takes over from the one that runs, and readers of its outputs miss nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import FencedError, PenstockError, StateError
from penstock.replica.config import GroupConfig
from penstock.replica.promotion import promote
from tests.replica.follower import Follower
from tests.replica.test_replicas import Site, delivered, of, sums, until
from tests.shard.rows import files_below


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def changed(site: Site) -> str:
    """Twice the sums, in the same shard, and a file of their own."""
    text = site.program().replace("sum(n) AS s", "sum(2 * n) AS s")
    return text.replace('"name": "file"', '"name": "file2"').replace("out.json", "out2.json")


def doubled(*ids: int) -> dict[str, tuple[int, int]]:
    return {g: (c, 2 * s) for g, (c, s) in of(*ids).items()}


def in_shard(site: Site) -> dict[str, tuple[int, int]]:
    return {r["g"]: (r["c"], r["s"]) for r in site.shard()}


def ready(pipeline: penstock.Pipeline) -> bool:
    return bool(pipeline.stats()["group"]["ready"])


def test_a_changed_program_takes_over(site: Site) -> None:
    old = site.replica("old")
    old.start()
    site.lines("one", *range(6))
    until(lambda: in_shard(site) == of(*range(6)))
    new = site.replica("new", program=changed(site), generation=1)
    new.start()
    until(lambda: sums(new) == doubled(*range(6)))
    group = new.stats()["group"]
    assert (group["generation"], group["running_generation"], group["read_only"]) == (1, 0, True)
    with pytest.raises(StateError, match="is read-only"):
        new.insert("t", [{"id": 1, "g": "x", "n": 1}])
    site.lines("two", 6, 7)
    until(lambda: sums(new) == doubled(*range(8)))
    assert in_shard(site) == of(*range(8)), "the new one writes nothing"
    until(lambda: ready(new))
    new.promote()
    until(lambda: in_shard(site) == doubled(*range(8)))
    until(lambda: old.state == "Stopped")
    assert old.failure_code == "FENCED"
    assert "generation 1" in str(old.failure)
    until(lambda: files_below(site.root / "shared" / "shop" / "generations") == [])
    site.lines("three", 8)
    new.insert("t", [{"id": 9, "g": "x", "n": 9}])
    new.flush()
    until(lambda: in_shard(site) == doubled(*range(10)))
    assert delivered(site) == of(*range(8)), "the old file has what the old program computed"
    (site.root / "out.json").rename(site.root / "old.json")
    until(lambda: (site.root / "out2.json").exists())
    (site.root / "out.json").symlink_to(site.root / "out2.json")
    until(lambda: delivered(site) == doubled(*range(10)))
    old.kill()
    with pytest.raises(FencedError, match="took over"):
        site.replica("old", generation=0).start()
    new.stop()
    again = site.replica("new", program=changed(site))
    again.start()
    site.lines("four", 10)
    until(lambda: in_shard(site) == doubled(*range(11)))
    until(lambda: delivered(site) == doubled(*range(11)))


def test_a_reader_sees_every_transaction_once(site: Site) -> None:
    """The same program, on another machine: all outputs go on."""
    old = site.replica("old")
    old.start()
    reader = Follower(site.uri, "sums")
    rows = iter(range(10_000))
    stop = threading.Event()
    active = old  # changes with the cut-over

    def load() -> None:
        """As fast as whoever is active takes it in."""
        while not stop.is_set():
            number = next(rows)
            before = active.last_transaction
            site.lines(f"line {number:05}", number)
            while active.last_transaction == before and not stop.wait(0.05):
                pass
            stop.wait(0.3)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        until(lambda: len(sums(old)) == 3)
        new = site.replica("new", generation=1)
        new.start()
        until(lambda: ready(new))
        time.sleep(1)
        before = time.monotonic()
        new.promote()
        until(lambda: not new.stats()["group"]["read_only"])
        active = new
        time.sleep(3)
    finally:
        stop.set()
        thread.join()
    ids = range(next(rows))
    until(lambda: sums(active) == of(*ids))
    until(lambda: reader.values == of(*ids))
    until(lambda: delivered(site) == of(*ids))
    reader.close()
    pause, usual = reader.longest_pause(before), reader.usual_pause(before)
    print(f"the longest pause that a reader saw: {pause:.2f} s; usually it was {usual:.2f} s")
    assert pause <= max(2.0, 6 * usual)  # two seconds, where the machine has time for it


def test_the_leader_dies_while_the_new_one_holds_its_batch(site: Site) -> None:
    old = site.replica("old")
    old.start()
    site.lines("one", *range(6))
    until(lambda: in_shard(site) == of(*range(6)))
    new = site.replica("new", generation=1)
    new.start()
    until(lambda: ready(new))
    shared = next(o for o in old._controller._outputs if o.name == "shared")  # type: ignore[union-attr]
    shared.may_write = lambda: False  # it decides and computes, and does not get to write
    old.insert("t", [{"id": 6, "g": "x", "n": 6}])
    until(lambda: sums(new) == of(*range(7)))
    old.kill()
    assert in_shard(site) == of(*range(6))
    new.promote()
    until(lambda: in_shard(site) == of(*range(7)))
    until(lambda: delivered(site) == of(*range(7)))


def test_what_is_not_ready_is_not_promoted(site: Site) -> None:
    old = site.replica("old")
    old.start()
    config = GroupConfig.of({"uri": site.uri}, "shop")
    with pytest.raises(StateError, match="no replica of generation 1"):
        promote(config, 1)
    with pytest.raises(StateError, match="only a later one"):
        promote(config, 0)
    with pytest.raises(StateError, match="there is no shard"):
        promote(GroupConfig.of({"uri": site.uri}, "nothing"), 1)
    new = site.replica("new", generation=1)
    new.start()
    new.kill()  # it harms nothing
    old.insert("t", [{"id": 1, "g": "y", "n": 1}])
    old.flush()
    until(lambda: in_shard(site) == of(1))
    with pytest.raises(StateError, match="the output file has changes of what sums was"):
        site.replica("other", program=site.program().replace("sum(n)", "sum(3 * n)"), generation=1).start()
    table = "CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, n BIGINT)"
    with pytest.raises(PenstockError, match="reads the connector lines into t"):
        site.replica("less", program=table, generation=1).start()
    with pytest.raises(PenstockError, match="the table t has other columns"):
        site.replica("another", program="CREATE TABLE t (x INT)", generation=1).start()
    promote(config, 1, force=True)
    until(lambda: old.failure_code == "FENCED")
    again = site.replica("new", generation=1)
    again.start()
    again.insert("t", [{"id": 2, "g": "z", "n": 2}])
    again.flush()
    until(lambda: in_shard(site) == of(1, 2))
