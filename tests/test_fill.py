"""A program that changed: views that did not are kept, new and changed ones are filled in one transaction."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import engine as engine_module
from penstock.errors import EvaluationError
from tests.engines import NOON, Running
from tests.oracle.cases import Case, load_cases, load_schema, program_of
from tests.oracle.compare import difference
from tests.oracle.domains import ROW_MAKERS
from tests.oracle.harness import table_schemas
from tests.oracle.history import random_history, seed_of_run
from tests.oracle.model import Model, Operation
from tests.oracle.recompute import Recompute

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, k INT, x INT, s STRING);
CREATE TABLE u (id INT PRIMARY KEY, k INT, x INT, s STRING);
CREATE TABLE b (k INT, d DOUBLE);
CREATE TABLE nothing (id INT PRIMARY KEY, k INT);
"""

OLD = {
    "kept_sums": "SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k",
    "kept_pairs": "SELECT t.id, b.d FROM t JOIN b ON t.k = b.k",
    "kept_left": "SELECT t.id, b.d FROM t LEFT JOIN b ON t.k = b.k",
    "kept_max": "SELECT k, max(d) AS m FROM b GROUP BY k",
    "changed": "SELECT id, x FROM t WHERE x > 5",
    "above_changed": "SELECT x, count(*) AS n FROM changed GROUP BY x",
    "dropped": "SELECT u.id FROM u JOIN b ON u.x = b.k",
}

NEW = {
    **{name: query for name, query in OLD.items() if name != "dropped"},
    "changed": "SELECT id, x FROM t WHERE x > 4",
    "filtered": "SELECT id, x + 1 AS y FROM t WHERE k = 1",
    "by_key": "SELECT t.id, u.x FROM t JOIN u ON t.k = u.id",
    "by_other": "SELECT t.id, u.id AS uid FROM t JOIN u ON t.x = u.x",
    "bags": "SELECT a.k, a.d, c.d AS e FROM b a JOIN b c ON a.k = c.k",
    "crossed": "SELECT t.id, u.id AS uid FROM t JOIN u ON t.x < u.x",
    "outer_left": "SELECT t.id, u.s FROM t LEFT JOIN u ON t.x = u.k",
    "outer_full": "SELECT t.id, u.id AS uid FROM t FULL JOIN u ON t.k = u.x",
    "semi": "SELECT id FROM t WHERE k IN (SELECT x FROM u)",
    "anti": "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "existing": "SELECT id FROM t WHERE x > 5 OR EXISTS (SELECT 1 FROM b WHERE b.k = t.k)",
    "grouped": "SELECT s, count(*) AS n, avg(x) AS a FROM u GROUP BY s",
    "rederived": "SELECT k, sum(d) AS s, sort_array(collect_set(d)) AS ds FROM b GROUP BY k",
    "total": "SELECT count(*) AS n, sum(x) AS s FROM t",
    "largest": "SELECT max(d) AS m FROM b",
    "no_total": "SELECT count(*) AS n, sum(k) AS s FROM nothing",
    "no_largest": "SELECT max(k) AS m FROM nothing",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY x, id) AS r FROM t",
    "ranked_all": "SELECT id, rank() OVER (ORDER BY x, id) AS r FROM u",
    "once": "SELECT DISTINCT k, s FROM t",
    "top": "SELECT id, x FROM t ORDER BY x DESC, id LIMIT 2",
    "constants": "SELECT k, id FROM t UNION ALL SELECT * FROM VALUES (1, 100), (2, 200) AS v(k, id)",
    "only_constants": "SELECT k, count(*) AS n FROM VALUES (1), (1), (2) AS v(k) GROUP BY k",
    "constants_joined": "SELECT t.id, v.n FROM t JOIN VALUES (1, 'one'), (2, 'two') AS v(k, n) ON t.k = v.k",
    "scalar": "SELECT id FROM t WHERE x > (SELECT avg(x) FROM u)",
    "tree": "WITH RECURSIVE r AS (SELECT id, k FROM t WHERE k = 0"
    " UNION ALL SELECT t.id, t.k FROM t JOIN r ON t.k = r.k + 1) SELECT id, k FROM r",
    "above_tree": "SELECT k, count(*) AS n FROM tree GROUP BY k",
    "tree_above": "WITH RECURSIVE r AS (SELECT k, 0 AS n FROM once"
    " UNION ALL SELECT r.k, r.n + 1 FROM r JOIN kept_sums q ON r.k = q.k WHERE r.n < q.n) SELECT * FROM r",
    "above_kept": "SELECT n, sum(s) AS s FROM kept_sums GROUP BY n",
    "joined_kept": "SELECT q.k, m.m FROM kept_sums q JOIN kept_max m ON q.k = m.k",
    "above_new": "SELECT y, count(*) AS n FROM filtered GROUP BY y",
    "twice_above": "SELECT f.id, g.n FROM filtered f JOIN above_new g ON f.y = g.y",
    "shares_sums": "SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k HAVING count(*) > 2",
    "shares_pairs": "SELECT t.id, b.d FROM t JOIN b ON t.k = b.k WHERE t.id + b.d > 3",
    "shares_left": "SELECT t.id, b.d + 1 AS d FROM t LEFT JOIN b ON t.k = b.k",
    "sets": "SELECT k, s, count(*) AS n FROM u GROUP BY GROUPING SETS ((k), (s), ())",
    "exploded": "SELECT id, n FROM t LATERAL VIEW explode(sequence(0, k)) AS n",
    "same": "SELECT k FROM t INTERSECT SELECT k FROM u",
}

_SOME = (
    "filtered",
    "by_key",
    "outer_full",
    "rederived",
    "no_total",
    "ranked",
    "constants",
    "tree",
    "above_tree",
)
FEW = {name: NEW[name] for name in _SOME}


def _program(views: dict[str, str]) -> str:
    return TABLES + "".join(f"CREATE VIEW {name} AS {query};\n" for name, query in views.items())


def _row(id_: int, k: int | None, x: int, s: str | None) -> dict[str, Any]:
    return {"id": id_, "k": k, "x": x, "s": s}


def _load(running: Running) -> None:
    running.commit(
        ("insert", "t", [_row(i, i % 4, i * 3 % 11, "abc"[i % 3]) for i in range(12)]),
        ("insert", "u", [_row(i, i % 3, i * 5 % 7, "ab"[i % 2]) for i in range(9)]),
        ("insert", "b", [{"k": i % 5, "d": i / 4} for i in range(10)]),
    )
    running.commit(
        ("insert", "t", [_row(3, None, 9, None), _row(20, 1, 5, "a")]),
        ("delete", "t", [{"id": 4}, {"id": 5}]),
        ("delete", "b", [{"k": 1, "d": 0.25}]),
        ("insert", "b", [{"k": 2, "d": 0.5}, {"k": None, "d": 7.0}]),
    )


def _go_on(running: Running) -> None:
    running.commit(
        ("insert", "t", [_row(1, 2, 8, "c"), _row(30, 0, 1, "a")]),
        ("delete", "u", [{"id": 0}, {"id": 7}]),
        ("insert", "b", [{"k": 1, "d": 0.125}]),
    )
    running.commit(("insert", "nothing", [{"id": 1, "k": 5}]), ("delete", "b", [{"k": 2, "d": 0.5}]))
    running.commit(("delete", "t", [{"id": i} for i in range(1, 40)]), ("insert", "u", [_row(1, 9, 9, None)]))


def _compare(running: Running, views: dict[str, str], step: str) -> None:
    wrong = []
    for name, query in views.items():
        found = difference(running.engine.query(f"SELECT * FROM {name}"), running.engine.query(query))
        if found is not None:
            wrong.append(f"{name} {step}: {found}")
    assert not wrong, "\n\n".join(wrong)


def _spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WIDE_ROWS", 0)
    monkeypatch.setattr(engine_module, "_PARTITION_ROWS", 16)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["narrow", "wide"])
def test_views_of_every_kind(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Running.started(_program(OLD), tmp_path / "batches")
    _load(before)
    if form == "wide":
        _spread(monkeypatch)
    after, found = before.become(_program(NEW))
    assert found.views.kept == ("kept_sums", "kept_pairs", "kept_left", "kept_max")
    assert found.views.changed == ("changed", "above_changed")
    assert found.views.removed == ("dropped",)
    there = after.engine.state.sizes()
    result = after.fill(found)
    assert set(result.changed) <= set(found.filled)
    assert result.rows_out["changed"] == result.growth["changed"]
    now = after.engine.state.sizes()
    assert {trace: now[trace] for trace in there} == there, "what is kept is not written"
    _compare(after, NEW, "after the fill")
    monkeypatch.undo()
    _go_on(after)
    _compare(after, NEW, "after more transactions")


def test_a_trace_that_is_shared_with_a_kept_view_goes_on(tmp_path: Path) -> None:
    views = {name: OLD[name] for name in ("kept_sums", "kept_pairs", "kept_left")}
    before = Running.started(_program(views), tmp_path / "batches")
    _load(before)
    shares = {name: query for name, query in NEW.items() if name.startswith("shares_")}
    after, found = before.become(_program(views | shares))
    result = after.fill(found)
    added = {
        trace
        for trace, batches in after.engine.state.sizes().items()
        if any(name.startswith(f"{result.transaction:012d}-") for name in batches)
    }
    assert added == {"view-shares_5f_sums", "view-shares_5f_pairs", "view-shares_5f_left"}
    _go_on(after)
    _compare(after, views | shares, "after more transactions")


def test_a_program_without_views_gets_some(tmp_path: Path) -> None:
    before = Running.started(TABLES, tmp_path / "batches")
    _load(before)
    after, found = before.become(_program(FEW))
    after.fill(found)
    _compare(after, FEW, "after the fill")


def test_nothing_to_fill(tmp_path: Path) -> None:
    before = Running.started(_program(OLD), tmp_path / "batches")
    _load(before)
    after, found = before.become(_program({name: OLD[name] for name in ("kept_sums", "kept_max")}))
    result = after.fill(found)
    assert result.changed == {}
    _go_on(after)
    _compare(after, {name: OLD[name] for name in ("kept_sums", "kept_max")}, "after more transactions")


def test_a_table_is_new_too(tmp_path: Path) -> None:
    before = Running.started("CREATE TABLE t (id INT PRIMARY KEY, k INT, x INT, s STRING);", tmp_path / "b")
    before.commit(("insert", "t", [_row(i, i, i, "a") for i in range(5)]))
    after, found = before.become(_program(FEW))
    assert found.tables.added == ("u", "b", "nothing")
    after.fill(found)
    _compare(after, FEW, "after the fill")
    _load(after)
    _compare(after, FEW, "after more transactions")


AGES = "SELECT id, now() AS at FROM t"
LATE = "SELECT count(*) AS n FROM t WHERE now() > TIMESTAMP'2024-02-29 12:03:30Z'"
WHOLE = """WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 2)
    SELECT n, now() AS at FROM r"""


def _times(running: Running, view: str) -> set[Any]:
    return {row["at"] for row in running.engine.query(f"SELECT at FROM {view}").to_pylist()}


def _time(minute: int) -> Any:
    return NOON.replace(minute=minute)


def test_the_first_view_that_asks_for_the_time(tmp_path: Path) -> None:
    before = Running.started(_program(OLD), tmp_path / "batches")
    _load(before)
    after, found = before.become(_program({"ages": AGES, "late": LATE, "whole": WHOLE}))
    after.fill(found)
    assert _times(after, "ages") == _times(after, "whole") == {_time(3)}
    assert after.engine.query("SELECT n FROM late").to_pylist() == [{"n": 0}]
    after.commit(("insert", "t", [_row(50, 1, 1, "z")]))
    assert _times(after, "ages") == _times(after, "whole") == {_time(4)}
    rows = after.engine.query("SELECT id FROM ages").num_rows
    assert after.engine.query("SELECT n FROM late").to_pylist() == [{"n": rows}]


def test_a_new_view_agrees_on_the_time_with_kept_ones(tmp_path: Path) -> None:
    before = Running.started(_program({"ages": AGES}), tmp_path / "batches")
    _load(before)
    after, found = before.become(_program({"ages": AGES, "again": f"{AGES} WHERE x > 3", "whole": WHOLE}))
    after.fill(found)
    assert _times(after, "ages") == _times(after, "again") == _times(after, "whole") == {_time(2)}
    after.commit(("delete", "t", [{"id": 1}]))
    assert _times(after, "ages") == _times(after, "again") == _times(after, "whole") == {_time(4)}


def test_a_fill_that_fails_leaves_nothing(tmp_path: Path) -> None:
    before = Running.started(_program(OLD), tmp_path / "batches")
    _load(before)
    wrong = {**OLD, "more": NEW["by_other"], "quotients": "SELECT id, 10 DIV x AS q FROM t"}
    after, found = before.become(_program(wrong))
    there = after.engine.state.sizes()
    with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
        after.fill(found)
    assert after.engine.state.sizes() == there
    written = after.engine.files.directory.glob(f"*/{after.transaction:012d}-*")
    assert list(written) == []
    _compare(after, OLD, "after the failure")


SCHEMA = load_schema()
EVERY = int(os.environ.get("PENSTOCK_FILL_EVERY", "6"))  # 1: all cases, which takes long
CASES = load_cases()[::EVERY]
CHUNK = 24


def _commit(running: Running, model: Model, transaction: tuple[Operation, ...]) -> None:
    def sent(operation: Operation) -> list[dict[str, Any]]:
        table = model.tables[operation.table].table
        names = (operation.action.value == "delete" and table.primary_key) or table.schema.names
        return [{name: row[name] for name in names} for row in operation.rows]

    running.commit(*((o.action.value, o.table, sent(o)) for o in transaction))
    model.apply(transaction)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range((len(CASES) + CHUNK - 1) // CHUNK))
def test_every_case(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third case is there from the start, the others are filled, in turns narrow and wide."""
    cases = CASES[chunk * CHUNK : (chunk + 1) * CHUNK]
    tables = table_schemas(SCHEMA)
    history = random_history(tables, ROW_MAKERS, seed=seed_of_run(), transactions=6, stream=chunk)
    model = Model(tables)
    before = Running.started(program_of(SCHEMA, cases[::3]), tmp_path / "batches")
    for transaction in history.transactions[:3]:
        _commit(before, model, transaction)
    if chunk % 2:
        _spread(monkeypatch)
    after, found = before.become(program_of(SCHEMA, cases))
    after.fill(found)
    monkeypatch.undo()
    oracle = Recompute(after.engine.spark)
    _check(after, model, oracle, cases, "after the fill")
    for transaction in history.transactions[3:]:
        _commit(after, model, transaction)
    _check(after, model, oracle, cases, "after more transactions")


def _check(running: Running, model: Model, oracle: Recompute, cases: list[Case], step: str) -> None:
    wrong = []
    for case, expected in zip(cases, oracle.results(model, cases), strict=True):
        found = difference(running.engine.query(f"SELECT * FROM {case.view}"), expected)
        if found is not None:
            wrong.append(f"{case.view} {step} (seed {seed_of_run()}): {found}\n{case.statements}")
    assert not wrong, "\n\n".join(wrong)
