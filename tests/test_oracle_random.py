"""Hypothesis makes the histories: any transactions, over a few views that use every kind of rule."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracle.cases import Case, load_schema
from tests.oracle.domains import ROW_MAKERS
from tests.oracle.harness import Trial, assert_equal, trial
from tests.oracle.history import seed_of_run
from tests.oracle.model import Action, Model, Operation, Transaction

VIEWS = [
    Case("random", "linear", "SELECT id, upper(g) AS g, n + 1 AS n FROM t WHERE k > 1"),
    Case("random", "delta join", "SELECT t.id, u.g, v.h FROM t JOIN u ON t.k = u.k JOIN v ON v.n = u.n"),
    Case("random", "group delta", "SELECT k, count(*) AS c, sum(n) AS s, avg(n) AS a FROM u GROUP BY k"),
    Case("random", "groups", "SELECT x, max(g) AS m, sum(x) AS s, count(DISTINCT n) AS d FROM u GROUP BY x"),
    Case("random", "full join", "SELECT u.g, v.h FROM u FULL JOIN v ON u.k = v.k AND u.n < v.n"),
    Case("random", "not in", "SELECT id FROM t WHERE n NOT IN (SELECT n FROM v WHERE v.k = 1)"),
    Case("random", "window", "SELECT id, sum(n) OVER (PARTITION BY g ORDER BY id) AS s FROM t"),
    Case("random", "limit", "SELECT id, n FROM t ORDER BY n, id LIMIT 3"),
]
SCHEMA = load_schema()
TABLES = ("t", "u", "v")


@dataclass(frozen=True)
class Step:
    """One change in a form that shrinks well: small numbers, made into rows only when it runs."""

    table: str
    delete: bool
    number: int


STEPS = st.builds(Step, st.sampled_from(TABLES), st.booleans(), st.integers(0, 60))
HISTORIES = st.lists(st.lists(STEPS, min_size=1, max_size=8), min_size=1, max_size=4)


def _transaction(steps: list[Step], model: Model) -> Transaction:
    """Number n is the n-th row there is (delete), or the row that the seed n makes (insert)."""
    operations = []
    held = {name: list(table.rows) for name, table in model.tables.items()}
    for step in steps:
        rows = held[step.table]
        if not step.delete:
            operations.append(
                Operation(Action.INSERT, step.table, (ROW_MAKERS[step.table](Random(step.number)),))
            )
        elif rows:
            gone = rows.pop(step.number % len(rows))
            operations.append(Operation(Action.DELETE, step.table, (gone,)))
    return tuple(operations)


MANY_HISTORIES = int(os.environ.get("PENSTOCK_HISTORIES", "100"))


@pytest.fixture(scope="module")
def running() -> Iterator[Trial]:
    with trial(SCHEMA, VIEWS, name="oracle-random", seed=seed_of_run()) as run:
        yield run


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(history=HISTORIES)
def test_any_history(running: Trial, history: list[list[Step]]) -> None:
    """Each example begins with empty tables, so that it repeats alone."""
    running.failures.clear()
    running.clear()
    for steps in history:
        running.apply(_transaction(steps, running.model))
    running.compare()
    assert_equal(running.failures)


@pytest.mark.slow(minutes=4)
@pytest.mark.timeout(3600)
@settings(max_examples=MANY_HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORIES)
def test_any_history_many_times(running: Trial, history: list[list[Step]]) -> None:
    test_any_history.hypothesis.inner_test(running, history)  # type: ignore[attr-defined]
