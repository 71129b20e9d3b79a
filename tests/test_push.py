"""Rows that come as text, as INSERT, and changes that go to a Python function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.errors import BadRowError, ProgramError, StateError

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, name STRING, n INT DEFAULT 5);
CREATE VIEW total AS SELECT count(*) AS c, sum(n) AS s FROM t;
"""


@pytest.fixture(scope="module")
def pipeline() -> Iterator[penstock.Pipeline]:
    with penstock.Pipeline("push", PROGRAM, config={"workers": 2}) as started:
        yield started


@pytest.fixture(autouse=True)
def _empty(pipeline: penstock.Pipeline) -> None:
    pipeline.delete("t", pipeline.query("SELECT id FROM t"))
    pipeline.flush()


def rows(pipeline: penstock.Pipeline) -> list[tuple[int, str, int]]:
    pipeline.flush()
    return [tuple(row.values()) for row in pipeline.query("SELECT * FROM t ORDER BY id").to_pylist()]


def test_text_of_a_format(pipeline: penstock.Pipeline) -> None:
    assert pipeline.push("t", '{"id": 1, "name": "a"}\n{"id": 2, "name": "b", "n": 7}\n') == 2
    assert (
        pipeline.push(
            "t", '[{"insert": {"id": 3}}, {"delete": {"id": 1}}]', array=True, update_format="insert_delete"
        )
        == 2
    )
    assert pipeline.push("t", b"4;d;1\n", "csv", delimiter=";") == 1
    assert rows(pipeline) == [(2, "b", 7), (3, None, 5), (4, "d", 1)]


def test_a_bad_record_takes_the_whole_push_with_it(pipeline: penstock.Pipeline) -> None:
    with pytest.raises(BadRowError, match=r"line 2 of what was pushed to t: .*'many'.*\(and 1 more\)"):
        pipeline.push("t", '{"id": 1}\n{"id": 2, "n": "many"}\n{"id": "x"}\n')
    with pytest.raises(penstock.PenstockError, match="expected one of csv, json, parquet, avro"):
        pipeline.push("t", "", "xml")
    assert rows(pipeline) == []


def test_insert_with_values_and_with_a_query(pipeline: penstock.Pipeline) -> None:
    assert pipeline.execute("INSERT INTO t VALUES (1, 'a', 2), (2, 'b', 3)") == 2
    pipeline.flush()
    assert pipeline.execute("INSERT INTO t (id, name) SELECT id + 10, upper(name) FROM t") == 2
    assert rows(pipeline) == [(1, "a", 2), (2, "b", 3), (11, "A", 5), (12, "B", 5)]
    with pytest.raises(ProgramError, match="names 3 columns"):
        pipeline.execute("INSERT INTO t SELECT 1")
    with pytest.raises(ProgramError, match="expected INSERT INTO"):
        pipeline.execute("DELETE FROM t")
    with pytest.raises(StateError, match="there is no table u"):
        pipeline.execute("INSERT INTO u VALUES (1)")


def test_a_function_gets_each_transaction_with_its_number(tmp_path: Path) -> None:
    seen: list[tuple[int, list[dict[str, object]]]] = []

    def function(transaction: int, changes: pa.Table) -> None:
        seen.append((transaction, changes.to_pylist()))

    def started() -> penstock.Pipeline:
        made = penstock.Pipeline("callback", PROGRAM, storage=tmp_path, config={"workers": 2})
        made.on_change("total", function)
        with pytest.raises(StateError, match=r"total\.callback is taken"):
            made.on_change("Total", function)
        made.start()
        return made

    pipeline = started()
    for id_ in (1, 2):
        pipeline.insert("t", [{"id": id_}])
        pipeline.flush()
    with pytest.raises(StateError, match="already running"):
        pipeline.on_change("total", function)
    assert [transaction for transaction, _ in seen] == [0, 1, 2]
    assert seen[2][1] == [
        {"c": 1, "s": 5, "_change_type": "delete", "_weight": 1},
        {"c": 2, "s": 10, "_change_type": "insert", "_weight": 1},
    ]
    pipeline.kill()
    pipeline = started()
    pipeline.flush()
    assert [transaction for transaction, _ in seen] == [0, 1, 2, 2]  # at least once
    pipeline.stop()
    pipeline = started()
    pipeline.stop()
    assert len(seen) == 4
