"""Outputs that are added, left out and emptied, on a pipeline that goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import ConnectorError

Start = Callable[..., penstock.Pipeline]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the pipeline with outputs of these names, each a file, on views v and w."""
    started: list[penstock.Pipeline] = []

    def written(names: tuple[str, ...]) -> str:
        path = tmp_path / "out"
        return json.dumps(
            [
                {
                    "name": n,
                    "transport": {"name": "file_output", "config": {"path": str(path / f"{n}.jsonl")}},
                }
                for n in names
            ]
        )

    def starting(*names: str, where: str = "true") -> penstock.Pipeline:
        on_v, on_w = (tuple(n for n in names if n.startswith(view)) for view in "vw")
        program = f"""
        CREATE TABLE t (id INT PRIMARY KEY);
        CREATE VIEW v WITH ('connectors' = '{written(on_v)}') AS SELECT id FROM t WHERE {where};
        CREATE VIEW w WITH ('connectors' = '{written(on_w)}') AS SELECT id FROM t WHERE id > 0;
        """
        pipeline = penstock.Pipeline("p", program, storage=tmp_path / "storage", config={"workers": 2})
        pipeline.start()
        started.append(pipeline)
        return pipeline

    yield starting
    for pipeline in started:
        pipeline.kill()


def insert(pipeline: penstock.Pipeline, *ids: int) -> None:
    for id_ in ids:
        pipeline.insert("t", [{"id": id_}])
        pipeline.flush()


def written(tmp_path: Path, name: str) -> list[tuple[int, int]]:
    """Transaction and id of every line of an output, all of which are insertions."""
    lines = [json.loads(line) for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()]
    assert {line["_change_type"] for line in lines} <= {"insert"}
    return sorted((line["_transaction"], line["id"]) for line in lines)


def test_a_new_output_begins_with_the_rows_of_its_view(start: Start, tmp_path: Path) -> None:
    pipeline = start("v1")
    insert(pipeline, 1, 2)
    pipeline.stop()
    pipeline = start("v1", "v2")
    insert(pipeline, 3)
    assert written(tmp_path, "v1") == [(1, 1), (2, 2), (3, 3)]
    assert written(tmp_path, "v2") == [(2, 1), (2, 2), (3, 3)]
    pipeline.kill()
    start("v1", "v2").flush()
    assert written(tmp_path, "v2") == [(2, 1), (2, 2), (3, 3)]


def test_an_output_that_missed_something_is_refused_until_it_is_emptied(start: Start, tmp_path: Path) -> None:
    pipeline = start("v1")
    insert(pipeline, 1)
    pipeline.stop()
    pipeline = start()
    insert(pipeline, 2)
    pipeline.stop()
    with pytest.raises(ConnectorError, match="v1 has transactions up to 1, and those up to 2 are"):
        start("v1")
    (tmp_path / "out" / ".v1.jsonl.penstock").unlink()
    pipeline = start("v1")
    insert(pipeline, 3)
    assert written(tmp_path, "v1") == [(2, 1), (2, 2), (3, 3)]


def test_an_output_that_was_left_out_and_missed_nothing_goes_on(start: Start, tmp_path: Path) -> None:
    pipeline = start("v1")
    insert(pipeline, 1)
    pipeline.stop()
    start().stop()
    pipeline = start("v1", where="id > 0")  # the same rows by another view
    insert(pipeline, 2)
    assert written(tmp_path, "v1") == [(1, 1), (3, 2)], "2 was for what became of its rows: nothing"


def test_an_output_that_was_left_out_when_its_view_changed_is_refused(start: Start, tmp_path: Path) -> None:
    pipeline = start("v1")
    insert(pipeline, 1, 2)
    pipeline.stop()
    start(where="id > 1").stop()
    with pytest.raises(ConnectorError, match=r"v1 .* nobody can tell what it missed"):
        start("v1", where="id > 1")
    (tmp_path / "out" / ".v1.jsonl.penstock").unlink()
    pipeline = start("v1", where="id > 1")
    pipeline.kill()  # before any checkpoint knows of it
    pipeline = start("v1", where="id > 1")
    insert(pipeline, 3)
    assert written(tmp_path, "v1") == [(2, 2), (3, 3)]


def test_an_output_that_began_before_its_view_changed_is_told_of_the_change(
    start: Start, tmp_path: Path
) -> None:
    pipeline = start("v1")
    insert(pipeline, 1, 2)
    pipeline.stop()
    start("v1", "v2").kill()  # before any checkpoint knows of it
    pipeline = start("v1", "v2", where="id > 1")
    pipeline.flush()
    lines = [json.loads(line) for line in (tmp_path / "out" / "v2.jsonl").read_text().splitlines()]
    changes = [(line["_transaction"], line["_change_type"], line["id"]) for line in lines]
    assert sorted(changes) == [(2, "insert", 1), (2, "insert", 2), (3, "delete", 1)]


def test_an_output_that_lost_its_memory_begins_anew(start: Start, tmp_path: Path) -> None:
    pipeline = start("v1")
    insert(pipeline, 1, 2)
    pipeline.stop()
    (tmp_path / "out" / ".v1.jsonl.penstock").unlink()
    insert(start("v1"), 3)
    assert written(tmp_path, "v1") == [(2, 1), (2, 2), (3, 3)]


def test_an_output_that_was_added_before_any_checkpoint_gets_nothing_twice(
    start: Start, tmp_path: Path
) -> None:
    pipeline = start("v1")
    insert(pipeline, 1, 2)
    pipeline.kill()
    pipeline = start("v1", "w1")
    insert(pipeline, 3)
    pipeline.kill()
    pipeline = start("v1", "w1")
    insert(pipeline, 4)
    every = [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert (written(tmp_path, "v1"), written(tmp_path, "w1")) == (every, every)
    assert max(Counter(written(tmp_path, "w1")).values()) == 1
