"""Transactions that a client opens, and pipelines that pause."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import EvaluationError, StateError

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, n INT);
CREATE VIEW total AS SELECT count(*) AS c, sum(n) AS s FROM t;
CREATE VIEW shares AS SELECT id, 100 / n AS share FROM t;
"""

Start = Callable[..., penstock.Pipeline]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the pipeline on the same storage as often as it is called."""
    started: list[penstock.Pipeline] = []

    def starting(program: str = PROGRAM, **config: int) -> penstock.Pipeline:
        pipeline = penstock.Pipeline(
            "p", program=program, storage=tmp_path / "storage", config={"workers": 2, **config}
        )
        pipeline.start()
        started.append(pipeline)
        return pipeline

    yield starting
    for pipeline in started:
        pipeline.kill()


def total(pipeline: penstock.Pipeline) -> tuple[int, int | None]:
    row = pipeline.query("SELECT c, s FROM total").to_pylist()[0]
    return row["c"], row["s"]


def test_an_open_transaction_survives_a_crash_and_is_seen_once(start: Start) -> None:
    pipeline = start()
    pipeline.insert("t", [{"id": 1, "n": 1}])
    pipeline.flush()
    number = pipeline.start_transaction()
    for id_ in (2, 3):
        pipeline.insert("t", [{"id": id_, "n": id_}])
        pipeline.flush()
    assert total(pipeline) == (1, 1)
    pipeline.kill()

    pipeline = start()
    assert pipeline.open_transaction == number
    assert pipeline.stats()["transaction"] == {
        "number": number,
        "client": True,
        "state": "open",
        "steps": 2,
        "rows": 2,
        "tasks": 0,
        "tasks_done": 0,
    }
    assert total(pipeline) == (1, 1)
    pipeline.insert("t", [{"id": 4, "n": 4}])
    seen = pipeline.changes("total")
    assert [change.transaction for change in seen] == [number - 1]
    assert pipeline.commit_transaction(number) == number
    assert [change.transaction for change in seen] == [number]
    assert total(pipeline) == (4, 10)
    pipeline.kill()
    pipeline = start()
    assert (pipeline.open_transaction, total(pipeline)) == (None, (4, 10))


def test_a_rolled_back_transaction_is_gone_and_its_number_is_used_up(start: Start) -> None:
    pipeline = start()
    number = pipeline.start_transaction()
    pipeline.insert("t", [{"id": 1, "n": 1}])
    pipeline.flush()
    pipeline.kill()
    pipeline = start()
    assert pipeline.rollback_transaction() == number
    assert total(pipeline) == (0, None)
    pipeline.insert("t", [{"id": 2, "n": 2}])
    pipeline.flush()
    assert pipeline.stats()["transactions"] == number + 1
    pipeline.kill()
    pipeline = start()
    assert total(pipeline) == (1, 2)


def test_only_one_transaction_is_open_and_others_join_it(start: Start) -> None:
    pipeline = start()
    with pytest.raises(StateError, match="no transaction is open"):
        pipeline.commit_transaction()
    with pytest.raises(StateError, match="no transaction is open"):
        pipeline.rollback_transaction()
    number = pipeline.start_transaction()
    with pytest.raises(StateError, match=f"transaction {number} is already open"):
        pipeline.start_transaction()
    with pytest.raises(StateError, match="is not under way"):
        pipeline.commit_transaction(number + 1)
    other = threading.Thread(target=lambda: pipeline.insert("t", [{"id": 7, "n": 7}]))
    other.start()
    other.join()
    with pipeline.transaction():
        pipeline.insert("t", [{"id": 8, "n": 8}])
    pipeline.flush()
    assert total(pipeline) == (0, None)
    with pytest.raises(StateError, match=r"no checkpoint can be taken: transaction \d+ is open"):
        pipeline.checkpoint()
    pipeline.commit_transaction()
    assert total(pipeline) == (2, 15)
    assert pipeline.checkpoint() == number


def test_a_client_may_roll_back_what_cannot_be_evaluated(start: Start) -> None:
    pipeline = start()
    number = pipeline.start_transaction()
    pipeline.insert("t", [{"id": 1, "n": 0}])
    with pytest.raises(EvaluationError, match="in view shares"):
        pipeline.commit_transaction()
    assert pipeline.state == "Paused"
    with pytest.raises(EvaluationError):
        pipeline.commit_transaction()  # nothing has changed
    assert pipeline.rollback_transaction() == number
    assert pipeline.state == "Running"
    assert total(pipeline) == (0, None)


def test_a_transaction_that_failed_fails_again_after_a_crash_and_can_be_skipped(start: Start) -> None:
    pipeline = start()
    pipeline.insert("t", [{"id": 1, "n": 0}])
    with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
        pipeline.flush()
    failed = pipeline.stats()["transaction"]["number"]
    pipeline.kill()
    pipeline = start()
    assert pipeline.state == "Paused"
    with pytest.raises(StateError, match="no client opened"):
        pipeline.rollback_transaction()
    with pytest.raises(StateError, match="is not under way"):
        pipeline.resume(skip_transaction=failed + 1)
    pipeline.resume(skip_transaction=failed)
    pipeline.insert("t", [{"id": 2, "n": 2}])
    pipeline.flush()
    assert total(pipeline) == (1, 2)
    with pytest.raises(StateError, match="no transaction has failed"):
        pipeline.resume(skip_transaction=failed + 2)
    pipeline.kill()
    assert total(start()) == (1, 2)


def test_a_small_transaction_waits_for_company(start: Start) -> None:
    pipeline = start(min_batch_size_records=3, max_buffering_delay_usecs=60_000_000)
    before = pipeline.stats()["transactions"]
    for id_ in range(3):
        pipeline.insert("t", [{"id": id_, "n": 1}])
    pipeline.flush()
    assert pipeline.stats()["transactions"] == before + 1


def _reading(directory: Path, **more: object) -> str:
    connector = {
        "name": "lines",
        "transport": {"name": "file_input", "config": {"path": str(directory), "follow": True}},
        "format": {"name": "json"},
        **more,
    }
    return PROGRAM.replace("n INT)", f"n INT) WITH ('connectors' = '{json.dumps([connector])}')", 1)


def _append(path: Path, *rows: tuple[int, int]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps({"id": id_, "n": n}) + "\n" for id_, n in rows)


def _until(pipeline: penstock.Pipeline, condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        pipeline.wait(0.05)
    raise AssertionError(pipeline.stats())


def test_what_a_connector_gave_to_a_rolled_back_transaction_it_gives_again(
    start: Start, tmp_path: Path
) -> None:
    source = tmp_path / "in" / "a.json"
    _append(source, (1, 1))
    pipeline = start(_reading(source.parent))
    _until(pipeline, lambda: total(pipeline) == (1, 1))
    pipeline.start_transaction()
    _append(source, (2, 2))
    _until(pipeline, lambda: pipeline.stats()["transaction"]["rows"] == 1)
    _append(source, (3, 3))
    _until(pipeline, lambda: pipeline.stats()["transaction"]["rows"] == 2)
    pipeline.rollback_transaction()
    _until(pipeline, lambda: total(pipeline) == (3, 6))
    assert pipeline.stats()["inputs"]["lines"]["rows"] == 3
    pipeline.kill()
    pipeline = start(_reading(source.parent))
    assert total(pipeline) == (3, 6)


def test_a_paused_connector_stays_paused_over_a_restart(start: Start, tmp_path: Path) -> None:
    source = tmp_path / "in" / "a.json"
    _append(source, (1, 1))
    program = _reading(source.parent, paused=True)
    pipeline = start(program)
    pipeline.wait(0.3)
    assert (total(pipeline), pipeline.stats()["inputs"]["lines"]["status"]) == ((0, None), "paused")
    pipeline.resume_connector("lines")
    _until(pipeline, lambda: total(pipeline) == (1, 1))
    pipeline.pause_connector("lines")
    pipeline.kill()
    _append(source, (2, 2))
    pipeline = start(program)
    pipeline.wait(0.3)
    assert total(pipeline) == (1, 1)
    with pytest.raises(StateError, match="the input connectors are: lines"):
        pipeline.pause_connector("line")
    pipeline.resume_connector("lines")
    _until(pipeline, lambda: total(pipeline) == (2, 3))


def test_a_roll_back_after_a_crash_gives_connectors_their_rows_back(start: Start, tmp_path: Path) -> None:
    source = tmp_path / "in" / "a.json"
    source.parent.mkdir()
    program = _reading(source.parent)
    pipeline = start(program)
    pipeline.start_transaction()
    _append(source, (1, 1), (2, 2))
    _until(pipeline, lambda: pipeline.stats()["transaction"]["rows"] == 2)
    pipeline.kill()
    pipeline = start(program)
    pipeline.rollback_transaction()
    _until(pipeline, lambda: total(pipeline) == (2, 3))


def test_flush_returns_when_the_pipeline_is_killed(start: Start) -> None:
    pipeline = start(min_batch_size_records=100, max_buffering_delay_usecs=600_000_000)
    pipeline.insert("t", [{"id": 1, "n": 1}])
    failed: list[Exception] = []

    def flush() -> None:
        try:
            pipeline.flush()
        except StateError as error:
            failed.append(error)

    waiting = threading.Thread(target=flush)
    waiting.start()
    pipeline.kill()
    waiting.join(10)
    assert not waiting.is_alive()
    assert "stopped before this was done" in str(failed[0])


def test_a_view_that_cannot_be_computed_over_nothing_is_refused_each_time(start: Start) -> None:
    program = "CREATE TABLE t (id INT); CREATE VIEW v AS SELECT count(*) / 0 AS n FROM t"
    for _ in range(2):
        with pytest.raises(EvaluationError, match=r"before there are any rows.*Correct the program"):
            start(program)


def test_a_commit_shows_how_far_it_has_come(start: Start) -> None:
    pipeline = start()
    pipeline.start_transaction()
    pipeline.insert("t", [{"id": id_, "n": 1} for id_ in range(200_000)])
    pipeline.flush()
    commit = threading.Thread(target=pipeline.commit_transaction)
    commit.start()
    seen = set()
    while commit.is_alive():
        if (under_way := pipeline.stats()["transaction"]) is not None:
            seen.add((under_way["state"], under_way["rows"], under_way["tasks"] > 0))
    commit.join()
    assert ("evaluating", 200_000, True) in seen
    assert total(pipeline) == (200_000, 200_000)
