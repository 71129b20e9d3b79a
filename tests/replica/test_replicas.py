"""Replicas of a pipeline, in one process: what one takes in all have, and every output gets it once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import DivergedError, EvaluationError, PenstockError, StateError
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig

NEVER = {"checkpoint_interval_secs": None}


class Site:
    """A place for a group, and its replicas."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = (root / "shared").as_uri()
        self._made: list[penstock.Pipeline] = []

    def replica(self, storage: str, *, program: str | None = None, **group: Any) -> penstock.Pipeline:
        config = {
            "workers": 1,
            "fault_tolerance": NEVER,
            "group": {"uri": self.uri, "lease_seconds": 2, **group},
        }
        text = self.program() if program is None else program
        found = penstock.Pipeline("shop", text, storage=self.root / storage, config=config)
        self._made.append(found)
        return found

    def program(self) -> str:
        (self.root / "in").mkdir(exist_ok=True)
        read = [
            {
                "name": "lines",
                "transport": {
                    "name": "file_input",
                    "config": {"path": str(self.root / "in" / "*.json"), "follow": True},
                },
                "format": {"name": "json", "config": {"update_format": "raw"}},
            }
        ]
        outs = [
            {
                "name": "shared",
                "transport": {"name": "shard_output", "config": {"uri": self.uri, "name": "sums"}},
            },
            {
                "name": "file",
                "transport": {"name": "file_output", "config": {"path": str(self.root / "out.json")}},
                "format": {"name": "json"},
            },
        ]
        return f"""
        CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, n BIGINT) WITH ('connectors' = '{json.dumps(read)}');
        CREATE MATERIALIZED VIEW sums WITH ('connectors' = '{json.dumps(outs)}') AS
            SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
        CREATE MATERIALIZED VIEW clock AS SELECT n, now() AS at FROM (SELECT max(n) AS n FROM t);
        """

    def lines(self, name: str, *ids: int) -> None:
        path = self.root / "in" / f"{name}.json"
        rows = "".join(json.dumps({"id": i, "g": "xyz"[i % 3], "n": i}) + "\n" for i in ids)
        part = path.with_suffix(".part")
        part.write_text(rows)
        part.rename(path)

    def shard(self) -> list[dict[str, Any]]:
        place = PlaceConfig(self.uri).opened()
        try:
            shard = Shard.open(place, "sums")
            upper = shard.upper
            return shard.snapshot(upper - 1).to_pylist() if upper else []
        finally:
            place.close()

    def close(self) -> None:
        for pipeline in self._made:
            pipeline.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def sums(pipeline: penstock.Pipeline) -> dict[str, tuple[int, int]]:
    return {row["g"]: (row["c"], row["s"]) for row in pipeline.query("SELECT * FROM sums").to_pylist()}


def of(*ids: int) -> dict[str, tuple[int, int]]:
    found = {g: [i for i in ids if "xyz"[i % 3] == g] for g in "xyz"}
    return {g: (len(some), sum(some)) for g, some in found.items() if some}


def until(condition: Callable[[], object], why: str = "it did not happen") -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def delivered(site: Site) -> dict[str, tuple[int, int]]:
    """What the lines of the file output come to; each transaction is there once, in order."""
    path = site.root / "out.json"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    numbers = [record["_transaction"] for record in records]
    assert numbers == sorted(numbers)
    found: dict[str, tuple[int, int]] = {}
    for record in sorted(records, key=lambda one: (one["_transaction"], one["_change_type"])):
        row = (record["c"], record["s"])
        if record["_change_type"] == "delete":
            assert found.pop(record["g"]) == row
        else:
            assert record["g"] not in found
            found[record["g"]] = row
    return found


def test_what_one_takes_in_all_have(site: Site) -> None:
    a, b = site.replica("a"), site.replica("b")
    a.start()
    b.start()
    site.lines("one", 1, 2, 3)
    until(lambda: sums(a) == sums(b) == of(1, 2, 3))
    a.insert("t", [{"id": 4, "g": "y", "n": 4}])
    a.flush()
    b.insert("t", [{"id": 5, "g": "z", "n": 5}])
    b.flush()
    until(lambda: sums(a) == sums(b) == of(1, 2, 3, 4, 5))
    until(lambda: a.last_transaction == b.last_transaction)
    assert a.query("SELECT * FROM clock") == b.query("SELECT * FROM clock"), "one time for all"
    until(lambda: delivered(site) == of(1, 2, 3, 4, 5))
    until(lambda: {r["g"]: (r["c"], r["s"]) for r in site.shard()} == of(1, 2, 3, 4, 5))


def test_one_leads_and_another_takes_over(site: Site) -> None:
    a, b = site.replica("a"), site.replica("b")
    a.start()
    until(lambda: a.stats()["group"]["leads"])
    b.start()
    site.lines("one", *range(10))
    until(lambda: sums(b) == of(*range(10)))
    assert a.stats()["outputs"]["file"]["status"] == "running"
    assert b.stats()["outputs"]["file"]["status"] == "following"
    until(lambda: b.stats()["outputs"]["file"]["behind"] == 0, "nobody tells how far the leader is")
    a.kill()
    site.lines("two", *range(10, 20))
    until(lambda: b.stats()["group"]["leads"])
    until(lambda: delivered(site) == of(*range(20)))
    again = site.replica("a")
    again.start()
    until(lambda: sums(again) == of(*range(20)))
    assert not again.stats()["group"]["leads"]
    b.stop()
    site.lines("three", 20, 21)
    until(lambda: delivered(site) == of(*range(22)))


def test_one_that_was_away_catches_up(site: Site) -> None:
    a, b = site.replica("a"), site.replica("b")
    a.start()
    b.start()
    site.lines("one", 1)
    until(lambda: sums(b) == of(1))
    b.stop()
    for i in range(2, 8):
        site.lines(f"more {i}", i)
        a.insert("t", [{"id": 100 + i, "g": "xyz"[(100 + i) % 3], "n": 100 + i}])
        a.flush()
    ids = [*range(1, 8), *range(102, 108)]
    until(lambda: sums(a) == of(*ids))
    a.kill()
    b = site.replica("b")
    b.start()
    until(lambda: sums(b) == of(*ids))
    until(lambda: delivered(site) == of(*ids))


def test_a_new_one_begins_with_what_the_tables_have(site: Site) -> None:
    """Long after the group has forgotten what its first transactions were made of."""
    a = site.replica("a", lease_seconds=1)
    a.start()
    for i in range(12):
        a.insert("t", [{"id": i, "g": "xyz"[i % 3], "n": i}])
        a.flush()
    a.delete("t", [{"id": 3}])
    a.flush()
    site.lines("one", 20, 21)
    ids = [i for i in (*range(12), 20, 21) if i != 3]
    until(lambda: sums(a) == of(*ids))
    place = PlaceConfig(site.uri).opened()
    until(lambda: Shard.open(place, "shop/binding").since > 5, "nothing is let go of")
    place.close()
    b = site.replica("b")
    b.start()
    until(lambda: sums(b) == of(*ids))
    assert b.last_transaction == a.last_transaction
    assert b.query("SELECT * FROM clock") == a.query("SELECT * FROM clock")
    site.lines("two", 30)
    b.insert("t", [{"id": 31, "g": "y", "n": 31}])
    b.flush()
    until(lambda: sums(a) == sums(b) == of(*ids, 30, 31))
    a.kill()
    until(lambda: delivered(site) == of(*ids, 30, 31))
    b.kill()
    b = site.replica("b")
    b.start()  # not with its first transaction again: nobody knows any more what that was
    assert sums(b) == of(*ids, 30, 31)
    site.lines("three", 40)
    until(lambda: delivered(site) == of(*ids, 30, 31, 40))
    until(lambda: {r["g"]: (r["c"], r["s"]) for r in site.shard()} == of(*ids, 30, 31, 40))
    b.stop()
    b = site.replica("b")
    b.start()
    assert sums(b) == of(*ids, 30, 31, 40)


def test_rows_that_wait_are_in_one_transaction_only(site: Site) -> None:
    """Both send at once, again and again: whoever loses a race sends again."""
    a, b = site.replica("a"), site.replica("b")
    a.start()
    b.start()
    for i in range(0, 40, 2):
        a.insert("t", [{"id": i, "g": "xyz"[i % 3], "n": i}])
        b.insert("t", [{"id": i + 1, "g": "xyz"[(i + 1) % 3], "n": i + 1}])
    a.flush()
    b.flush()
    until(lambda: sums(a) == sums(b) == of(*range(40)))
    until(lambda: delivered(site) == of(*range(40)))


def slowed(pipeline: penstock.Pipeline, seconds: float) -> None:
    """Every transaction takes it so much longer."""
    transactions = pipeline._controller._transactions  # type: ignore[union-attr]
    evaluate = transactions.evaluate

    def slowly() -> None:
        time.sleep(seconds)
        evaluate()

    transactions.evaluate = slowly  # type: ignore[method-assign]


def test_rows_sent_to_a_slow_one_are_not_kept_waiting(site: Site) -> None:
    """The others decide on one transaction after the other, always before it is there."""
    a, b = site.replica("a"), site.replica("b")
    a.start()
    b.start()
    slowed(b, 2.0)
    stop = threading.Event()
    ids = [1000, 1001]

    def load() -> None:
        while not stop.is_set():
            ids.append(len(ids))
            a.insert("t", [{"id": ids[-1], "g": "xyz"[ids[-1] % 3], "n": ids[-1]}])
            a.flush()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        until(lambda: a.last_transaction > b.last_transaction + 3)
        b.insert("t", [{"id": 1000, "g": "y", "n": 1000}])
        until(lambda: a.query("SELECT * FROM t WHERE id = 1000").num_rows == 1)
        assert a.last_transaction > b.last_transaction, "it is as fast as the other one"
        b.insert("t", [{"id": 1001, "g": "z", "n": 1001}])
    finally:
        stop.set()
        thread.join()
    b.flush()
    until(lambda: sums(a) == sums(b) == of(*ids))
    until(lambda: delivered(site) == of(*ids))
    b.stop()


def test_one_that_computes_something_else_writes_no_more(site: Site) -> None:
    a, b = site.replica("a"), site.replica("b")
    b.start()
    until(lambda: b.stats()["group"]["leads"])
    a.start()
    site.lines("one", 1, 2, 3)
    until(lambda: sums(a) == sums(b) == of(1, 2, 3))
    slowed(b, 1.0)
    wrong = next(o for o in b._controller._outputs if o.name == "shared").output  # type: ignore[union-attr]
    right = wrong.write
    wrong.write = lambda number, changes: right(number, changes.slice(1))  # type: ignore[method-assign]
    a.insert("t", [{"id": 4, "g": "y", "n": 4}])
    a.flush()
    until(lambda: b.state == "Stopped")
    assert b.failure_code == "DIVERGED"
    with pytest.raises(DivergedError, match="has other changes for transaction"):
        b.insert("t", [{"id": 5, "g": "z", "n": 5}])
    until(lambda: a.stats()["group"]["leads"])
    a.insert("t", [{"id": 6, "g": "x", "n": 6}])
    a.flush()
    until(lambda: delivered(site) == of(1, 2, 3, 4, 6))
    until(lambda: {r["g"]: (r["c"], r["s"]) for r in site.shard()} == of(1, 2, 3, 4, 6))


def broken_by_zero(site: Site) -> str:
    return site.program() + "CREATE MATERIALIZED VIEW shares AS SELECT id, 100 / n AS share FROM t;"


def test_what_one_skips_all_skip(site: Site) -> None:
    program = broken_by_zero(site)
    a, b = site.replica("a", program=program), site.replica("b", program=program)
    a.start()
    b.start()
    a.insert("t", [{"id": 1, "g": "y", "n": 1}])
    a.flush()
    a.insert("t", [{"id": 3, "g": "x", "n": 0}])
    with pytest.raises(EvaluationError):
        a.flush()
    number = a.last_transaction + 1
    until(lambda: a.state == b.state == "Paused")
    a.resume(skip_transaction=number)
    until(lambda: b.state == "Running")
    b.insert("t", [{"id": 2, "g": "z", "n": 2}])
    b.flush()
    until(lambda: sums(a) == sums(b) == of(1, 2))
    c = site.replica("c", program=program)
    c.start()
    until(lambda: sums(c) == of(1, 2))
    until(lambda: delivered(site) == of(1, 2))


def test_what_others_have_run_is_not_skipped(site: Site) -> None:
    a, b = site.replica("a"), site.replica("b")
    a.start()
    b.start()
    site.lines("one", 1)
    until(lambda: sums(a) == sums(b) == of(1))
    transactions = b._controller._transactions  # type: ignore[union-attr]
    run = transactions.run

    def fail(*_: object) -> Any:
        raise EvaluationError("no memory")

    transactions.run = fail  # type: ignore[method-assign]
    a.insert("t", [{"id": 2, "g": "z", "n": 2}])
    a.flush()
    until(lambda: b.state == "Paused")
    with pytest.raises(StateError, match="another replica has run transaction"):
        b.resume(skip_transaction=a.last_transaction)
    transactions.run = run  # type: ignore[method-assign]
    b.resume()
    until(lambda: sums(b) == of(1, 2))


def test_what_cannot_be_is_refused(site: Site) -> None:
    a = site.replica("a")
    a.start()
    with pytest.raises(StateError, match="cannot keep a transaction open"):
        a.start_transaction()
    a.stop()
    with pytest.raises(StateError, match="belongs to a replica of a group"):
        penstock.Pipeline("shop", site.program(), storage=site.root / "a").start()
    alone = penstock.Pipeline("shop", "CREATE TABLE t (x INT)", storage=site.root / "alone")
    alone.start()
    alone.stop()
    with pytest.raises(StateError, match="ran alone"):
        site.replica("alone", program="CREATE TABLE t (x INT)").start()
    changed = site.program().replace("sum(n) AS s", "sum(2 * n) AS s")
    with pytest.raises(StateError, match="run another program"):
        site.replica("c", program=changed).start()
    with pytest.raises(PenstockError, match="has other columns"):
        site.replica("d", program="CREATE TABLE t (x INT)").start()
    with pytest.raises(StateError, match="another group"):
        site.replica("a", name="other").start()
    with pytest.raises(StateError, match="unknown field 'url'"):
        site.replica("e", url="x")
    with pytest.raises(PenstockError, match="cannot be changed"):
        site.replica("a", program=changed).start()
