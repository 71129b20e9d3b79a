"""Analyse a program with Spark: the schema and the typed plan of every view, or an error with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from penstock.connectors import ERROR_COLUMN, keeps_errors
from penstock.errors import PlanError, ProgramError
from penstock.plan.catalyst import Catalyst
from penstock.plan.nodes import Node, Scan
from penstock.plan.rules.table import ERROR_FIELDS
from penstock.sql import Column, Program, Table, View, ViewKind
from penstock.sql.clock import replace_now

CLOCK = "__penstock_clock"
RESERVED = ("_op", "_weight", "_change_type")
_MOMENT = re.compile(
    r"\b(?:timestamp(?:_ntz|_ltz)?|date)\s*'\s*(?:now|today|tomorrow|yesterday)\s*'", re.IGNORECASE
)


@dataclass(frozen=True)
class TableRelation:
    """A table, ready to take input."""

    name: str
    schema: tuple[StructField, ...]
    key: tuple[int, ...]
    append_only: bool
    defaults: Mapping[str, Any]
    errors: str | None = None
    """The name of the relation that has what could not be read, by key."""
    errors_of: str | None = None
    """The name of the table, if this is that relation: it has no input of its own."""

    @property
    def trace(self) -> str:
        return f"table-{_safe(self.name)}"

    @property
    def arrow(self) -> pa.Schema:
        return _arrow(self.schema)


@dataclass(frozen=True)
class ViewRelation:
    """A view with its plan; without a plan it is computed as a whole, for the `reason`."""

    name: str
    schema: tuple[StructField, ...]
    node: Node | None
    reason: str | None
    query: str
    reads: tuple[str, ...]
    local: bool

    @property
    def trace(self) -> str:
        return f"view-{_safe(self.name)}"

    @property
    def arrow(self) -> pa.Schema:
        return _arrow(self.schema)


def _arrow(schema: Sequence[StructField]) -> pa.Schema:
    """Columns as Spark hands them to Python."""
    return to_arrow_schema(StructType(list(schema)), timezone="UTC")


Relation = TableRelation | ViewRelation


def _safe(name: str) -> str:
    """A name as a directory name; distinct names stay distinct."""
    return "".join(ch if ch.isalnum() and ch.isascii() else f"_{ord(ch):x}_" for ch in name.lower())


def is_stored(relation: Relation) -> TypeGuard[TableRelation]:
    """Whether its rows are input, and not computed: a table, or what could not be read of one."""
    return isinstance(relation, TableRelation) and relation.name != CLOCK


def analyse(program: Program, catalyst: Catalyst) -> dict[str, Relation]:
    """All relations by lower-case name, in dependency order; raises ProgramError."""
    relations: dict[str, Relation] = {}
    for table in program.tables:
        relations[table.name.lower()] = found = _table(table, catalyst)
        if found.errors is not None:
            relations[found.errors.lower()] = _errors(table, found, program)
    clocked = [view for view in program.views if replace_now(view.query)[1]]
    if clocked:
        relations[CLOCK] = _clock(catalyst)
    for view in program.views:
        relations[view.name.lower()] = _view(view, catalyst)
    return relations


def _table(table: Table, catalyst: Catalyst) -> TableRelation:
    names = [c.name.lower() for c in table.columns]
    key = tuple(names.index(name.lower()) for name in table.primary_key)
    errors = f"{table.name}_errors" if any(keeps_errors(c) for c in table.connectors) else None
    for column in table.columns:
        if column.name.lower() in (*RESERVED, *([ERROR_COLUMN] if errors is not None else [])):
            raise ProgramError(
                f"the column name {column.name} is taken; give it another",
                line=table.line,
                column=table.column,
                statement=f"CREATE TABLE {table.name}",
            )
    catalyst.declare(table.name, table.schema)
    defaults = {}
    for column in table.columns:
        if column.default is not None:
            defaults[column.name] = _default(table, column, catalyst)
    return TableRelation(table.name, tuple(table.schema.fields), key, table.append_only, defaults, errors)


def _errors(table: Table, relation: TableRelation, program: Program) -> TableRelation:
    """What could not be read of a table's input, by the key of the row that it would have been."""
    assert relation.errors is not None
    relations: tuple[Table | View, ...] = (*program.tables, *program.views)
    if any(other.name.lower() == relation.errors.lower() for other in relations):
        raise ProgramError(
            f"the name {relation.errors} is taken: values of {table.name} that cannot be read are kept there;"
            " give the other one another name",
            line=table.line,
            column=table.column,
            statement=f"CREATE TABLE {table.name}",
        )
    schema = [relation.schema[position] for position in relation.key]
    schema += [StructField(name, StringType()) for name in ERROR_FIELDS]
    key = tuple(range(len(relation.key)))
    return TableRelation(relation.errors, tuple(schema), key, False, {}, errors_of=table.name)


def _default(table: Table, column: Column, catalyst: Catalyst) -> Any:
    """The value of a DEFAULT, which is the same for every row."""
    type_ = column.type.simpleString()
    refused = f"DEFAULT {column.default} of column {column.name} is not a constant of type {type_}"
    place: dict[str, Any] = {
        "line": table.line,
        "column": table.column,
        "statement": f"CREATE TABLE {table.name}",
    }
    try:
        frame = catalyst.spark.range(1).select(F.expr(column.default or "NULL").cast(column.type))
        if replace_now(column.default or "")[1] or catalyst.non_deterministic(frame) is not None:
            raise ProgramError(f"{refused}: it changes from call to call", **place)
        return frame.toArrow().column(0)[0].as_py()
    except PySparkException as error:
        raise ProgramError(f"{refused}: {_first_line(error)}", **place) from error


def _clock(catalyst: Catalyst) -> TableRelation:
    """The transaction's own time, as a table with one row that every transaction updates."""
    schema = StructType([StructField("id", IntegerType(), False), StructField("now", TimestampType(), False)])
    catalyst.declare(CLOCK, schema)
    return TableRelation(CLOCK, tuple(schema.fields), (0,), False, {})


def clock_row(now: datetime) -> pa.Table:
    """The clock's one row, as input."""
    return pa.table(
        {
            "id": pa.array([0], pa.int32()),
            "now": pa.array([now], pa.timestamp("us", "UTC")),
            "_op": pa.array([1], pa.int8()),
        }
    )


def _view(view: View, catalyst: Catalyst) -> ViewRelation:
    query, clocked = replace_now(view.query)
    frame = _analysed(view, query, catalyst)
    if (name := catalyst.non_deterministic(frame)) is not None:
        raise _error(
            view,
            f"{name}() gives another value each time it is called, so the view could not be kept up to date;"
            " compute the value when the row is inserted",
            *_find(view.query, re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)),
        )
    if (moment := _MOMENT.search(query)) is not None:
        raise _error(
            view,
            f"{moment[0]} would be the moment of planning; use now() or current_date()",
            *_find(query, _MOMENT),
        )
    _check_columns(view, frame)
    names = [f.name.lower() for f in frame.schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise _error(view, f"two columns are named {name}; give one of them an alias with AS", 1, 1)
    reason = None
    node: Node | None
    try:
        node = catalyst.read(frame)
    except PlanError as error:
        node, reason = None, str(error)
    catalyst.declare(view.name, frame.schema)
    reads = (*view.depends_on, *((CLOCK,) if clocked else ()))
    return ViewRelation(
        view.name,
        tuple(frame.schema.fields),
        node,
        reason,
        query,
        tuple(name.lower() for name in reads),
        view.kind is ViewKind.LOCAL,
    )


def _check_columns(view: View, frame: DataFrame) -> None:
    """Refuse columns that cannot be kept or delivered."""
    for column in frame.schema.fields:
        if column.name.lower() in RESERVED:
            raise _error(view, f"the column name {column.name} is taken; give it an alias with AS", 1, 1)
        try:
            to_arrow_schema(StructType([column]), timezone="UTC")
        except PySparkException as error:
            type_ = column.dataType.simpleString()
            raise _error(
                view, f"column {column.name} has the type {type_}, which cannot be kept; cast it", 1, 1
            ) from error


def _analysed(view: View, query: str, catalyst: Catalyst) -> DataFrame:
    try:
        frame = catalyst.spark.sql(query)
        if view.columns:
            if len(view.columns) != len(frame.columns):
                raise _error(
                    view, f"{len(view.columns)} column names are given for {len(frame.columns)} columns", 1, 1
                )
            frame = frame.toDF(*view.columns)
        catalyst.optimize(frame)
        return frame
    except ParseException as error:
        place = re.search(r"line (\d+), pos (\d+)", str(error))
        line, column = (int(place[1]), int(place[2]) + 1) if place else (1, 1)
        raise _error(view, _first_line(error), line, column) from error
    except AnalysisException as error:
        raise _error(view, _first_line(error), *_place(error, query)) from error
    except PySparkException as error:
        raise _error(view, _first_line(error), 1, 1) from error


def _place(error: PySparkException, query: str) -> tuple[int, int]:
    """Where in the query Spark saw the error."""
    for context in error.getQueryContext() or ():
        start = context.startIndex()
        if start >= 0:
            before = query[:start]
            return before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
    return 1, 1


def _find(query: str, pattern: re.Pattern[str]) -> tuple[int, int]:
    match = pattern.search(query)
    before = query[: match.start()] if match else ""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _first_line(error: Exception) -> str:
    """Spark's message without its JVM stack and without the query, which we show by place."""
    return str(error).strip().split("\n", 1)[0].split("; line", 1)[0].rstrip()


def _error(view: View, message: str, line: int, column: int) -> ProgramError:
    place = view.locate(line, column)
    return ProgramError(message, line=place[0], column=place[1], statement=f"CREATE VIEW {view.name}")


def scans(node: Node) -> Sequence[str]:
    """The relations that a plan reads, once per time it reads them."""
    own = [node.relation.lower()] if isinstance(node, Scan) else []
    return [*own, *(name for child in node.children for name in scans(child))]
