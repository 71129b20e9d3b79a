"""Replicas that read a shard: what each of them still needs is held back for it, and let go of with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.checkpoint.model import Saved
from penstock.connectors.input.shard import ShardInput, read_shard
from penstock.connectors.interface import READING, Split, refuse
from penstock.controller.checkpoints import Checkpoints, Policy
from penstock.errors import DataExpiredError
from penstock.shard.keeping import Keeper
from penstock.shard.rows import TIME, WEIGHT
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.writer import ShardWriter
from tests.replica.test_replicas import Site, until

SCHEMA = pa.schema([("x", pa.int64())])


class Source:
    """A shard that somebody writes and keeps tidy."""

    def __init__(self, uri: str) -> None:
        self.config = PlaceConfig(uri)
        self.shard = Shard.open(self.config.opened(), "numbers", SCHEMA)
        self._writer = ShardWriter(self.shard, "test")
        self._keeper = Keeper(self.shard, self._writer)
        self._made: list[ShardInput] = []

    def append(self, *values: int) -> None:
        for value in values:
            at = self.shard.upper
            rows = {"x": [value], TIME: [at], WEIGHT: [1]}
            self._writer.compare_and_append(pa.table(rows), at, at + 1)

    def keep(self) -> int:
        """Tidy up, as its writer does; returns the first time that can be read then."""
        self._keeper.keep()
        return self.shard.since

    def input(self, replica: str) -> ShardInput:
        found = ShardInput("in", self.config, "numbers", ["x"], 3600)
        found.replica = replica
        self._made.append(found)
        return found

    def values(self, *splits: Split) -> list[int]:
        found = []
        for split in splits:
            payload = {**split.payload, READING: {"place": self.config.plain}}
            for batch in read_shard(payload, SCHEMA, {}, refuse):
                found += batch.column("x").to_pylist()
        return sorted(found)

    @property
    def readers(self) -> set[str]:
        return set(self.shard.machine.refresh().readers)

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    found = Source((tmp_path / "shards").as_uri())
    yield found
    found.close()


def polled(given: ShardInput) -> list[Split]:
    given._looked = 0.0
    return given.poll(1000)


def test_a_slow_replica_keeps_what_a_fast_one_has_read(source: Source) -> None:
    fast, slow = source.input("a"), source.input("b")
    source.append(1, 2)
    first = polled(fast)
    slow.hold(first)  # it will run that, as the group decided
    slow.seek(fast.position)
    source.append(3, 4)
    second = polled(fast)
    source.append(5)
    polled(fast)
    fast.release(fast.position)
    source.append(6)
    assert source.keep() == 1, "what the first one began with"
    assert source.values(*slow.readable([*first, *second])) == [1, 2, 3, 4]
    slow.release({"frontier": 4})
    assert source.keep() == 3
    with pytest.raises(DataExpiredError):
        slow.readable(second)


def test_it_is_the_same_reader_after_a_restart(source: Source) -> None:
    source.append(1, 2)
    before = source.input("b")
    polled(before)
    position = before.position
    before.close()
    readers = source.readers
    source.append(3)
    again = source.input("b")
    again.seek(position)
    assert source.values(*polled(again)) == [3]
    assert source.readers == readers == {"b/in"}


def test_positions_are_the_same_whoever_reads(source: Source) -> None:
    source.append(1, 2)
    a, b = source.input("a"), source.input("b")
    polled(a)
    polled(b)
    assert a.position == b.position
    assert source.readers == {"a/in", "b/in"}


def test_one_that_leaves_holds_nothing_back(source: Source) -> None:
    a, b = source.input("a"), source.input("b")
    source.append(1, 2, 3)
    polled(a)
    polled(b)
    source.append(4, 5)
    polled(a)
    a.release(a.position)
    assert source.keep() == 0
    b.leave()
    b.close()
    assert source.readers == {"a/in"}
    assert source.keep() == 4


def test_going_back_to_the_beginning_is_no_second_reader(source: Source) -> None:
    source.append(1)
    alone = source.input("")
    polled(alone)
    alone.seek({})
    polled(alone)
    assert len(source.readers) == 1


# -- pipelines ----------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def reading(source: Source) -> str:
    config = {"uri": source.config.uri, "name": "numbers"}
    given = json.dumps([{"name": "in", "transport": {"name": "shard_input", "config": config}}])
    return f"""
    CREATE TABLE t (x BIGINT) WITH ('connectors' = '{given}');
    CREATE MATERIALIZED VIEW total AS SELECT count(*) AS c, sum(x) AS s FROM t;
    """


def total(pipeline: penstock.Pipeline) -> tuple[Any, ...]:
    (row,) = pipeline.query("SELECT c, s FROM total").to_pylist()
    return tuple(row.values())


def test_a_replica_that_was_away_reads_what_the_others_have_let_go_of(site: Site, source: Source) -> None:
    program = reading(source)
    a, b = site.replica("a", program=program), site.replica("b", program=program)
    a.start()
    source.append(1)
    until(lambda: total(a) == (1, 1))
    b.start()
    until(lambda: total(b) == (1, 1))
    source.append(2)
    until(lambda: total(b) == (2, 3))
    b.kill()  # its journal begins with all of it
    for x in range(3, 12):
        source.append(x)
        until(lambda x=x: total(a)[0] == x)  # type: ignore[misc]
        a.checkpoint()
    assert source.keep() == 0
    assert len(source.readers) == 2
    b = site.replica("b", program=program)
    b.start()
    until(lambda: total(b) == (11, 66))
    assert b.stats()["inputs"]["in"]["last_error"] is None


def test_a_replica_without_a_directory_is_waited_for_only_while_it_runs(site: Site, source: Source) -> None:
    program = reading(source)
    config = {"workers": 1, "group": {"uri": site.uri, "lease_seconds": 2}}
    a = site.replica("a", program=program)
    a.start()
    brief = penstock.Pipeline("shop", program, config=config)
    brief.start()
    source.append(1)
    until(lambda: total(a) == total(brief) == (1, 1))
    assert len(source.readers) == 2
    until(lambda: brief._controller._group.may_be_forgotten())  # type: ignore[union-attr]
    brief.stop()
    assert len(source.readers) == 1


class Released:
    """An input, as far as a checkpoint has to do with it."""

    name = "in"

    def __init__(self) -> None:
        self.positions: list[Any] = []

    def release(self, position: Any) -> None:
        self.positions.append(position)


def test_what_others_have_not_run_is_not_released() -> None:
    """One that decided on it holds it until they do so themselves."""
    runner, group = Released(), SimpleNamespace(since=4)
    storage = SimpleNamespace(temporary=False)
    transactions: Any = SimpleNamespace(group=group, inputs=[runner], storage=storage)
    checkpoints = Checkpoints(transactions, Saved(""), threading.Lock(), Policy())
    checkpoints._positions = {"1": (3, {"in": 30}), "2": (5, {"in": 50}), "3": (8, {"in": 80})}
    checkpoints._release("2")
    assert runner.positions == [30]
    group.since = 7
    checkpoints._release("3")
    assert runner.positions == [30, 50]
    group.since = 8
    checkpoints._release("3")
    assert runner.positions == [30, 50, 80]
    transactions.group = None
    checkpoints._positions["4"] = (9, {"in": 90})
    checkpoints._release("4")
    assert runner.positions == [30, 50, 80, 90]
