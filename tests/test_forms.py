"""A view is the same whichever form computed its changes: for all tables or for one, narrow or wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.engine import engine as engine_module
from penstock.errors import ProgramError

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, k INT, x INT, s STRING);
CREATE TABLE u (id INT PRIMARY KEY, k INT, x INT, s STRING);
CREATE TABLE b (d DOUBLE, a ARRAY<STRING>, m MAP<STRING, STRING>);
"""

QUERIES = {
    "literal_beside_nullable": "SELECT src, count(*) AS n FROM"
    " (SELECT 'a' AS src FROM t UNION ALL SELECT s FROM u) GROUP BY src",
    "literal_projected": "SELECT 'a' AS src, x FROM t UNION ALL SELECT s, x FROM u",
    "values_beside_table": "SELECT k, max(x) AS m FROM"
    " (SELECT k, x FROM t UNION ALL SELECT * FROM VALUES (1, 5), (2, 6) AS w(k, x)) GROUP BY k",
    "values_joined": "SELECT t.id, w.n FROM t JOIN VALUES (1, 'one'), (2, 'two') AS w(k, n) ON t.k = w.k",
    "subquery_in_order": "SELECT id FROM t ORDER BY abs(x - (SELECT max(x) FROM u)), id LIMIT 2",
    "subquery_in_join_key": "SELECT t.id, u.id AS uid FROM t JOIN u ON t.x + (SELECT min(x) FROM u) = u.k",
    "subquery_in_generator": "SELECT id, n FROM t"
    " LATERAL VIEW explode(sequence(0, (SELECT count(*) FROM u))) AS n",
    "commas_one": "SELECT t.id FROM t JOIN u ON t.k = u.k WHERE t.s IN ('a', 'b,c')",
    "commas_two": "SELECT t.id FROM t JOIN u ON t.k = u.k WHERE t.s IN ('a,b', 'c')",
    "second_value": "SELECT id, nth_value(x, 2) OVER (PARTITION BY k ORDER BY s) AS second FROM t",
    "collated": "SELECT count(*) AS n, min(id) AS m FROM t GROUP BY s COLLATE UTF8_LCASE",
    "nested": "SELECT a, m, count(*) AS n FROM b GROUP BY a, m",
    "doubles": "SELECT CAST(d AS STRING) AS d FROM b",
    "lambda": "SELECT id, transform(array(k, x), y -> y + 1) AS both FROM t",
    "recursive": "WITH RECURSIVE r AS (SELECT id, k FROM t WHERE k = 0"
    " UNION ALL SELECT t.id, t.k FROM t JOIN r ON t.k = r.k + 1) SELECT id, k FROM r",
    "over_recursive": "SELECT k, count(*) AS n FROM recursive GROUP BY k",
    "nothing_but_counts": "SELECT count(*) AS n FROM t CROSS JOIN u",
}

PROGRAM = TABLES + "".join(f"CREATE VIEW {name} AS {query};\n" for name, query in QUERIES.items())


def _t(id_: int, k: int, x: int, s: str | None) -> dict[str, Any]:
    return {"id": id_, "k": k, "x": x, "s": s}


@pytest.fixture(params=["narrow", "wide"])
def pipeline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[penstock.Pipeline]:
    if request.param == "wide":
        monkeypatch.setattr(engine_module, "WIDE_ROWS", 0)
        monkeypatch.setattr(engine_module, "_PARTITION_ROWS", 1)
    with penstock.Pipeline("forms", program=PROGRAM, config={"workers": 2}) as running:
        yield running


def _compare(pipeline: penstock.Pipeline, step: str) -> None:
    for name, query in QUERIES.items():
        kept = sorted(map(repr, pipeline.query(f"SELECT * FROM {name}").to_pylist()))
        fresh = sorted(map(repr, pipeline.query(query).to_pylist()))
        assert kept == fresh, f"{name} after {step}"


def test_every_form_agrees(pipeline: penstock.Pipeline) -> None:
    assert pipeline._controller is not None
    circuit = pipeline._controller.engine.circuit
    with pipeline.transaction():
        pipeline.insert("t", [_t(1, 0, 5, "a"), _t(2, 1, 5, "a"), _t(3, 1, 7, "b,c"), _t(4, 2, 7, "A")])
        pipeline.insert("u", [_t(1, 1, 5, "a"), _t(2, 2, 6, None), _t(3, 12, 5, "a")])
        pipeline.insert(
            "b",
            [
                {"d": 0.0, "a": [None, "null"], "m": {"a": None}},
                {"d": None, "a": ["null", None], "m": {"a": "null"}},
            ],
        )
    pipeline.flush()
    _compare(pipeline, "all tables")
    for turn in range(6):
        pipeline.insert("t", [_t(1, 0, turn, "a,b"), _t(10 + turn, turn % 3, turn, "c")])
        pipeline.flush()
        if turn == 3:
            circuit.specialise()
    _compare(pipeline, "changes of t")
    pipeline.delete("b", [{"d": -0.0, "a": [None, "null"], "m": {"a": None}}])
    pipeline.insert("u", [_t(2, 0, 9, "z")])
    pipeline.delete("t", [{"id": 11}, {"id": 2}])
    pipeline.flush()
    _compare(pipeline, "deletions")
    assert pipeline.stats()["tables"]["b"]["errors"] == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id, current_time() AS c FROM t", "current_time"),
        ("SELECT TIMESTAMP'now' AS c FROM t", "moment of planning"),
        ("SELECT * FROM t TABLESAMPLE (50 PERCENT)", "TABLESAMPLE"),
        ("SELECT make_interval(0, 1) AS c FROM t", "interval"),
        ("SELECT id AS _weight FROM t", "_weight is taken"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(query: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        penstock.check(f"{TABLES} CREATE VIEW v AS {query};")
