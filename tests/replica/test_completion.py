"""What a connector gave to a replica is complete when it is in a transaction that every output has: its own,
or one that another replica decided on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.connectors.input.datagen.connector import DatagenInput
from penstock.connectors.input.delta import DeltaInput
from penstock.connectors.input.file import FileInput
from penstock.connectors.input.kafka import KafkaInput
from penstock.connectors.input.shard import ShardInput
from penstock.connectors.interface import Input
from penstock.controller.inputs import InputRunner
from penstock.controller.outputs import OutputRunner
from tests.replica.test_replicas import Site, delivered, of, sums, until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def reached(kind: type[Input], position: Any, earlier: Any) -> bool:
    return kind.has_reached(None, position, earlier)  # type: ignore[arg-type]


def test_which_positions_have_reached_others() -> None:
    def topic(id_: str, **offsets: int) -> Any:
        return {"topics": {"t": {"id": id_, "next": offsets}}}

    assert reached(KafkaInput, topic("x", a=5, b=2), topic("x", a=5, b=1))
    assert reached(KafkaInput, topic("x", a=5), {"topics": {}})
    assert not reached(KafkaInput, topic("x", a=5, b=0), topic("x", a=4, b=1))
    assert not reached(KafkaInput, topic("x", a=5), topic("x", a=5, b=1))
    assert not reached(KafkaInput, topic("y", a=5), topic("x", a=5))

    assert reached(ShardInput, {"shard": "x", "frontier": 4}, {"shard": "x", "frontier": 4})
    assert not reached(ShardInput, {"shard": "x", "frontier": 3}, {"shard": "x", "frontier": 4})
    assert not reached(ShardInput, {"shard": "y", "frontier": 5}, {"shard": "x", "frontier": 4})

    def place(version: int | None, file: int | None = None, part: int = 0) -> Any:
        return {"version": version, "file": file, "part": part}

    assert reached(DeltaInput, place(3), place(None))
    assert reached(DeltaInput, place(3), place(3, 7))
    assert reached(DeltaInput, place(3, 1, 2), place(3, 1, 1))
    assert not reached(DeltaInput, place(4, 0), place(3)), "of that snapshot only a part was read"
    assert not reached(DeltaInput, place(3, 0, 9), place(3, 1, 0))
    assert not reached(DeltaInput, place(None), place(3))

    def files(**offsets: int) -> Any:
        at = {name: {"offset": n, "before": n, "done": False} for name, n in offsets.items()}
        return {"blobs": [{"blob": {"path": name}, "at": at[name]} for name in offsets]}

    assert reached(FileInput, files(b=1, a=2), files(a=2))
    assert reached(FileInput, files(a=2), {"blobs": None})
    assert not reached(FileInput, files(a=2), files(a=3))
    assert not reached(FileInput, files(b=9), files(a=1))

    rows = {"seed": 1, "rows": [5, 2], "plans": []}
    assert reached(DatagenInput, rows, {**rows, "rows": [5, 0]})
    assert not reached(DatagenInput, rows, {**rows, "rows": [5, 3]})
    assert not reached(DatagenInput, rows, {**rows, "seed": 2})


def test_an_output_that_waits_for_all_rows_lacks_every_transaction() -> None:
    output: Any = SimpleNamespace(name="out", advances=False, remembers=True)
    runner = OutputRunner("v", output, "owner", pa.schema([]), lambda _: None)
    runner.put(3, pa.table({"x": [1]}))
    assert not runner.lacks(2)
    assert runner.lacks(3)
    runner.delivered = 3
    assert not runner.lacks(3)
    runner.whole = True
    runner.put(4, pa.table({"x": [1]}))  # which is dropped, for it will be given all rows
    assert runner.lacks(4)


# -- pipelines ----------------------------------------------------------------------------------


def lines(pipeline: penstock.Pipeline) -> InputRunner:
    (found,) = pipeline._controller._inputs  # type: ignore[union-attr]
    return found


class Stopped:
    """A replica in the middle of a transaction, in which it stays until it is told to go on."""

    def __init__(self, pipeline: penstock.Pipeline, by: penstock.Pipeline) -> None:
        transactions = pipeline._controller._transactions  # type: ignore[union-attr]
        self._evaluate = transactions.evaluate
        self._transactions = transactions
        self._there = threading.Event()
        self._on = threading.Event()
        transactions.evaluate = self._wait
        by.insert("t", [{"id": 100, "g": "x", "n": 100}])
        by.flush()
        assert self._there.wait(240)

    def _wait(self) -> None:
        self._there.set()
        self._on.wait()
        self._evaluate()

    def go_on(self) -> None:
        self._transactions.evaluate = self._evaluate
        self._on.set()


def both(site: Site) -> tuple[penstock.Pipeline, penstock.Pipeline]:
    a, b = site.replica("a"), site.replica("b")
    a.start()
    until(lambda: a.stats()["group"]["leads"])
    b.start()
    return a, b


def test_what_lies_beyond_the_range_that_was_decided_on_is_not_complete(site: Site) -> None:
    a, b = both(site)
    stopped = Stopped(b, a)
    site.lines("one", 1)
    until(lambda: sums(a) == of(1) | {"x": (1, 100)})
    until(lambda: lines(b).given is not None)
    first = lines(b).given
    lines(a).hold(True)
    site.lines("two", 2)
    until(lambda: lines(b).given is not first)
    token = b.sent_by("lines")
    lines(b).hold(True)
    stopped.go_on()
    until(lambda: b.last_transaction >= a.last_transaction)
    until(lambda: delivered(site) == of(1) | {"x": (1, 100)})
    time.sleep(1)
    assert "z" not in sums(b)
    assert not token.complete
    lines(b).hold(False)
    until(lambda: token.complete)
    assert sums(b)["z"] == delivered(site)["z"] == (1, 2)
    until(lambda: b.sent_by("lines").complete)


def test_what_another_one_decided_on_is_complete_when_every_output_has_it(site: Site) -> None:
    a, b = both(site)
    stopped = Stopped(b, a)
    lines(a).hold(True)
    site.lines("one", 1)
    until(lambda: lines(b).given is not None)
    token = b.sent_by("lines")
    lines(b).hold(True)
    site.lines("two", 2)
    file = next(o for o in a._controller._outputs if o.name == "file")  # type: ignore[union-attr]
    file.may_write = lambda: False
    lines(a).hold(False)
    until(lambda: "z" in sums(a))
    assert not token.complete
    stopped.go_on()
    until(lambda: b.last_transaction >= a.last_transaction)
    time.sleep(1)
    assert not token.complete, "the file lacks it"
    file.may_write = lambda: True
    until(lambda: token.complete)
    assert delivered(site) == of(1, 2) | {"x": (1, 100)}
    assert token.transaction == a.last_transaction


def test_a_stop_says_what_became_of_it(site: Site) -> None:
    a, b = both(site)
    stopped = Stopped(b, a)
    site.lines("one", 1)
    until(lambda: "y" in sums(a))
    until(lambda: lines(b).given is not None)
    lines(a).hold(True)
    first = lines(b).given
    site.lines("two", 2)
    until(lambda: lines(b).given is not first)
    token = b.sent_by("lines")
    lines(b).hold(True)
    stopped.go_on()
    until(lambda: b.last_transaction >= a.last_transaction)
    b.stop()
    with pytest.raises(penstock.errors.StateError, match="was dropped"):
        token.wait()
