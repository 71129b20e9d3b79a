"""What `explain` says about how a view is kept up to date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock

TPCH = Path(__file__).parent / "fixtures" / "tpch"
SCHEMA = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, x DOUBLE, d DECIMAL(10, 2));
CREATE TABLE u (id INT PRIMARY KEY, t_id INT);
"""


def _operators(program: str, view: str = "v") -> list[dict[str, Any]]:
    operators: list[dict[str, Any]] = json.loads(penstock.explain(program, view, "json"))["operators"]
    return operators


def _strategies(query: str) -> set[str]:
    return {o["strategy"] for o in _operators(f"{SCHEMA} CREATE VIEW v AS {query}")}


def test_tpch_q3_is_incremental_throughout() -> None:
    schema = (TPCH / "schema.sql").read_text()
    query = (TPCH / "q03.sql").read_text().strip().rstrip(";")
    strategies = {o["strategy"] for o in _operators(f"{schema}\nCREATE VIEW v AS\n{query};")}
    assert strategies == {"source", "linear", "delta-join", "group-delta"}


def test_a_global_limit_says_why_and_what_would_be_cheaper() -> None:
    (limit,) = [
        o
        for o in _operators(f"{SCHEMA} CREATE VIEW v AS SELECT id FROM t ORDER BY d LIMIT 3")
        if o["strategy"] == "rederive-all"
    ]
    assert limit["operator"].startswith("Limit 3")
    assert "depends on all rows" in limit["reason"]
    assert "PARTITION BY" in limit["hint"]


@pytest.mark.parametrize(
    ("query", "dearest"),
    [
        ("SELECT id, d * 2 AS y FROM t WHERE g > 1", "linear"),
        ("SELECT t.id FROM t JOIN u ON t.id = u.t_id", "delta-join"),
        ("SELECT t.id FROM t LEFT JOIN u ON t.id = u.t_id", "delta-join"),
        ("SELECT id FROM t WHERE id NOT IN (SELECT t_id FROM u)", "delta-join"),
        ("SELECT g, sum(d) AS s, avg(id) AS a FROM t GROUP BY g", "group-delta"),
        ("SELECT DISTINCT g FROM t", "group-delta"),
        ("SELECT g, sum(x) AS s FROM t GROUP BY g", "rederive-groups"),
        ("SELECT g, max(id) AS m FROM t GROUP BY g", "rederive-groups"),
        ("SELECT id, rank() OVER (PARTITION BY g ORDER BY x) AS r FROM t", "rederive-groups"),
        ("SELECT id, rank() OVER (ORDER BY x) AS r FROM t", "rederive-all"),
        ("SELECT max(x) AS m FROM t", "rederive-all"),
    ],
)
def test_the_dearest_strategy_of_a_view(query: str, dearest: str) -> None:
    order = ["source", "linear", "delta-join", "group-delta", "rederive-groups", "rederive-all"]
    assert max(_strategies(query), key=order.index) == dearest
