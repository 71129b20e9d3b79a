"""No output of a pipeline is said to run while it has nothing of what came in, whatever the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.controller import outputs
from penstock.errors import UnreachableError
from tests.replica.test_replicas import Site, of, sums, until

STALL = 1.0

SQL = """
CREATE TABLE t (x INT);
CREATE VIEW a AS SELECT x FROM t;
CREATE VIEW b AS SELECT x + 1 AS x FROM t;
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "STALL_SECONDS", STALL)


class Gate:
    """Holds up who goes through it while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    def __call__(self, *_: object) -> None:
        self.open.wait()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def pipeline(gate: Gate) -> Iterator[penstock.Pipeline]:
    found = penstock.Pipeline("p", SQL, config={"workers": 1})
    found.on_change("a", gate, name="a")
    found.on_change("b", lambda *_: None, name="b")
    found.start()
    yield found
    gate.open.set()
    found.kill()


def statuses(pipeline: penstock.Pipeline) -> set[str]:
    return {output["status"] for output in pipeline.stats()["outputs"].values()}


def fails_to_stall(pipeline: penstock.Pipeline, seconds: float) -> bool:
    """Whether all outputs are said to run for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if statuses(pipeline) != {"running"}:
            return False
        time.sleep(0.05)
    return True


def goes_on(pipeline: penstock.Pipeline) -> None:
    until(lambda: statuses(pipeline) == {"running"} and pipeline.stalled == {})
    pipeline.flush()


def test_one_output_hangs_and_the_others_get_nothing_any_more(
    pipeline: penstock.Pipeline, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_WAITING", 2)
    gate.open.clear()
    for x in range(4):
        before = pipeline.last_transaction
        pipeline.insert("t", [{"x": x}])
        if x < 2:
            until(lambda: pipeline.last_transaction > before)  # noqa: B023 - it is called at once
    until(lambda: "waits for the output a" in pipeline.stalled.get("b", ""))
    assert pipeline.stats()["outputs"]["b"]["status"] == "stalled"
    assert "does not come back from writing" in pipeline.stalled["a"]
    gate.open.set()
    goes_on(pipeline)


def test_spark_hangs(pipeline: penstock.Pipeline, gate: Gate) -> None:
    engine = pipeline._controller.engine  # type: ignore[union-attr]
    run = engine.run

    def hang(*given: Any, **more: Any) -> Any:
        gate()
        return run(*given, **more)

    engine.run = hang  # type: ignore[method-assign]
    gate.open.clear()
    pipeline.insert("t", [{"x": 1}])
    until(lambda: statuses(pipeline) == {"stalled"})
    assert "Spark has finished no task for a while" in pipeline.stalled["a"]
    gate.open.set()
    goes_on(pipeline)


def test_a_long_transaction_that_gets_on(pipeline: penstock.Pipeline, gate: Gate) -> None:
    engine = pipeline._controller.engine  # type: ignore[union-attr]
    run, began = engine.run, time.monotonic()

    def take_long(*given: Any, **more: Any) -> Any:
        gate()
        return run(*given, **more)

    engine.run = take_long  # type: ignore[method-assign]
    engine.tasks = lambda: (int(10 * (time.monotonic() - began)), 100)  # type: ignore[method-assign]
    gate.open.clear()
    pipeline.insert("t", [{"x": 1}])
    assert fails_to_stall(pipeline, 3 * STALL)
    gate.open.set()
    goes_on(pipeline)


def test_nothing_to_do(pipeline: penstock.Pipeline) -> None:
    pipeline.insert("t", [{"x": 1}])
    pipeline.flush()
    assert fails_to_stall(pipeline, 2 * STALL), "nothing comes in"
    pipeline.start_transaction()
    pipeline.insert("t", [{"x": 2}])
    pipeline.flush()
    assert fails_to_stall(pipeline, 2 * STALL), "somebody keeps a transaction open"
    pipeline.commit_transaction()


def test_a_source_that_stays_away(pipeline: penstock.Pipeline) -> None:
    """However often it is tried again."""
    transactions = pipeline._controller._transactions  # type: ignore[union-attr]
    end = time.monotonic() + 2 * STALL
    seen = []

    def ask() -> str:
        seen.append((transactions.error, transactions.stalled))
        if time.monotonic() < end:
            raise UnreachableError("the source is away")
        return "it is back"

    assert transactions._patiently(ask) == "it is back"
    assert all(str(error) == "the source is away" for error, _ in seen[1:])
    assert seen[-1][1] == "the source is away", "and that for long"
    assert (transactions.error, transactions.stalled) == (None, None)


def test_a_replica_does_nothing_while_its_group_goes_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        a, b = site.replica("a"), site.replica("b")
        a.start()
        b.start()
        site.lines("one", 1)
        until(lambda: sums(a) == sums(b) == of(1))
        with b._controller._between:  # type: ignore[union-attr]
            site.lines("two", 2)
            until(lambda: sums(a) == of(1, 2))
            until(lambda: "shared" in b.stalled)
            assert b.stats()["outputs"]["shared"]["status"] == "stalled"
            assert f"transaction {b.last_transaction + 1} " in b.stalled["shared"]
            assert a.stalled == {}
        until(lambda: b.stalled == {} and sums(b) == of(1, 2))
    finally:
        site.close()


def test_a_decision_does_not_return(tmp_path: Path, gate: Gate) -> None:
    site = Site(tmp_path)
    try:
        a = site.replica("a")
        a.start()
        site.lines("one", 1)
        until(lambda: sums(a) == of(1))
        group = a._controller._group  # type: ignore[union-attr]
        decide: Callable[..., Any] = group.decide  # type: ignore[union-attr]

        def hang(*given: Any) -> Any:
            gate()
            return decide(*given)

        group.decide = hang  # type: ignore[method-assign, union-attr]
        gate.open.clear()
        site.lines("two", 2)
        until(lambda: {"shared", "file"} <= a.stalled.keys())
        assert "waits for its group, which gives no answer" in a.stalled["shared"]
        gate.open.set()
        until(lambda: a.stalled == {} and sums(a) == of(1, 2))
    finally:
        gate.open.set()
        site.close()
