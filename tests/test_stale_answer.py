"""A plan that keeps a result between runs must never be run twice."""

from __future__ import annotations

from typing import Any

import penstock
from penstock.engine.circuit import Circuit
from penstock.plan.catalyst import Catalyst

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, parent INT, g INT, n BIGINT);
CREATE VIEW sums AS SELECT g, sum(n) AS s FROM t GROUP BY GROUPING SETS ((g), ());
CREATE VIEW above AS SELECT id FROM t WHERE n > (SELECT avg(n) FROM t);
CREATE VIEW pairs AS SELECT a.id AS a, b.id AS b FROM t a LEFT JOIN t b ON a.id = b.parent;
CREATE VIEW top AS SELECT id FROM t ORDER BY n DESC, id LIMIT 2;
CREATE VIEW tree AS
WITH RECURSIVE r AS (
    SELECT id, 0 AS depth FROM t WHERE parent IS NULL
    UNION ALL
    SELECT t.id, r.depth + 1 FROM t JOIN r ON t.parent = r.id
) SELECT * FROM r;
"""


def _circuit(pipeline: penstock.Pipeline) -> Circuit:
    assert pipeline._controller is not None
    return pipeline._controller.engine.circuit


def test_what_keeps_a_result_is_recognised() -> None:
    with penstock.Pipeline("kinds", program="CREATE TABLE t (id INT);", config={"workers": 2}) as pipeline:
        catalyst: Catalyst = _circuit(pipeline).catalyst
        plain = catalyst.spark.range(10)
        assert not catalyst.has_exchange(plain.selectExpr("id + 1 AS x"))
        assert catalyst.has_exchange(plain.repartition(3))
        assert catalyst.has_exchange(plain.join(plain.hint("broadcast"), "id"))
        assert catalyst.has_exchange(plain.groupBy("id").count().repartition(2))
        plain.createOrReplaceTempView("plain")
        subquery = "SELECT id FROM plain WHERE id > (SELECT max(id) FROM range(0, 3, 1, 2))"
        assert catalyst.has_exchange(catalyst.spark.sql(subquery))
        cached = catalyst.spark.range(5).cache()
        assert catalyst.has_exchange(cached.selectExpr("id"))
        cached.unpersist()


def test_no_transaction_sees_an_earlier_one() -> None:
    rows: dict[int, dict[str, Any]] = {}
    with penstock.Pipeline("fresh", program=PROGRAM, config={"workers": 2}) as pipeline:
        for step in range(8):
            row = {"id": step, "parent": step // 2 if step else None, "g": step % 2, "n": step * 10}
            rows[step] = row
            pipeline.insert("t", [row])
            if step == 5:
                pipeline.delete("t", [{"id": 4}])
                del rows[4]
            pipeline.flush()
            total = sum(r["n"] for r in rows.values())
            assert pipeline.query("SELECT s FROM sums WHERE g IS NULL").to_pylist() == [{"s": total}]
            above = {i for i, r in rows.items() if r["n"] > total / len(rows)}
            assert {r["id"] for r in pipeline.query("SELECT id FROM above").to_pylist()} == above
            top = sorted(rows, key=lambda i: -rows[i]["n"])[:2]
            assert {r["id"] for r in pipeline.query("SELECT id FROM top").to_pylist()} == set(top)
            assert pipeline.query("SELECT count(*) AS n FROM pairs").to_pylist()[0]["n"] >= len(rows)
            reached = pipeline.query("SELECT count(*) AS n FROM tree").to_pylist()[0]["n"]
            assert reached == len(_reachable(rows))
        circuit = _circuit(pipeline)
        waves = [wave for form in circuit._forms.values() for wave in form]
        assert any(wave.job for wave in waves)
        for wave in waves:
            assert not (wave.job and circuit.catalyst.has_exchange(wave.frame))


def _reachable(rows: dict[int, dict[str, Any]]) -> set[int]:
    found = {i for i, row in rows.items() if row["parent"] is None}
    while True:
        more = {i for i, row in rows.items() if row["parent"] in found and i not in found}
        if not more:
            return found
        found |= more
