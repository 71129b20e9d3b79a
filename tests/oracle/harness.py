"""Runs a history through a pipeline and compares every view with Spark's own result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import penstock
from penstock.sql import parse_program
from tests.oracle.cases import Case, program_of
from tests.oracle.compare import difference
from tests.oracle.history import History
from tests.oracle.model import Action, Model, Operation, Row, TableSchema, Transaction
from tests.oracle.recompute import Recompute

CONFIG: Mapping[str, Any] = {"workers": 2}


def table_schemas(program: str) -> list[TableSchema]:
    """The tables that a program declares."""
    tables = parse_program(program).tables
    return [TableSchema(table.name, table.schema, table.primary_key) for table in tables]


@dataclass
class Trial:
    """A running pipeline beside the model of its tables."""

    pipeline: penstock.Pipeline
    cases: Sequence[Case]
    model: Model
    oracle: Recompute
    seed: int
    applied: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def apply(self, transaction: Transaction) -> None:
        """Commit the transaction in the pipeline and in the model."""
        with self.pipeline.transaction():
            for position, operation in enumerate(transaction):
                _send(self.pipeline, self.model, operation, as_arrow=position % 2 == 0)
        self.pipeline.flush()
        self.model.apply(transaction)
        self.applied += 1

    def clear(self) -> None:
        """Delete every row, in one transaction."""
        self.apply(self.model.deletion_of_all())

    def compare(self) -> None:
        """Note the first difference of each view that no longer equals its recomputation."""
        cases = [case for case in self.cases if case.view not in self.failures]
        for case, expected in zip(cases, self.oracle.results(self.model, cases), strict=True):
            actual = self.pipeline.query(f"SELECT * FROM {case.view}")
            found = difference(actual, expected)
            if found is not None:
                self.failures[case.view] = self._report(case, found)

    def _report(self, case: Case, found: str) -> str:
        return (
            f"{case.topic}: {case.name} differs after transaction {self.applied} "
            f"(repeat with PENSTOCK_SEED={self.seed})\n{found}\n{case.statements}"
            f"{self.pipeline.explain(case.view)}"
        )


def _send(pipeline: penstock.Pipeline, model: Model, operation: Operation, *, as_arrow: bool) -> None:
    """Insert or delete, as Arrow or as dicts, so that both ways in are used."""
    table = model.tables[operation.table].table
    if operation.action is Action.DELETE:
        pipeline.delete(table.name, [_deletion(table, row) for row in operation.rows])
    elif as_arrow:
        rows = [dict(row) for row in operation.rows]
        pipeline.insert(table.name, pa.Table.from_pylist(rows, schema=table.arrow_schema))
    else:
        pipeline.insert(table.name, [dict(row) for row in operation.rows])


def _deletion(table: TableSchema, row: Row) -> dict[str, Any]:
    """What names a row to delete: its key, or all of it."""
    return {name: row[name] for name in table.primary_key or table.schema.names}


@contextmanager
def trial(schema: str, cases: Sequence[Case], *, name: str, seed: int) -> Iterator[Trial]:
    """A started pipeline with the tables of `schema` and one view per case."""
    program = program_of(schema, cases)
    with penstock.Pipeline(name, program=program, config=CONFIG) as pipeline:
        model = Model(table_schemas(schema))
        yield Trial(pipeline, cases, model, Recompute(pipeline.spark), seed)


def check(
    schema: str,
    cases: Sequence[Case],
    history: History,
    *,
    name: str,
    compare_after: Collection[int] | None = None,
) -> dict[str, str]:
    """Run the history; the differences found, by view.

    `compare_after` holds the numbers (from 1) of the transactions after which views are compared, 0
    for the views over empty tables; without it they are compared after every transaction.
    """
    with trial(schema, cases, name=name, seed=history.seed) as run:
        for transaction in ((), *history.transactions):
            if transaction:
                run.apply(transaction)
            if compare_after is None or run.applied in compare_after:
                run.compare()
        return run.failures


def assert_equal(failures: Mapping[str, str]) -> None:
    """Fail with every difference found."""
    assert not failures, "\n\n".join(failures.values())
