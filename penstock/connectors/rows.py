"""What a caller gives to insert or delete, as one Arrow table of the table's columns and `_op`.

Rows may be a list of dicts, a pyarrow Table or RecordBatch, or a pandas DataFrame. Column names are
case-insensitive, as in Spark. All rows fit, or one `BadRowError` names the row, the column and the value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.connectors.columns import cast_column
from penstock.connectors.interface import DELETE, INSERT, OP_FIELD
from penstock.connectors.misfit import BadValueError, a_kind, sql_name
from penstock.connectors.values import to_array
from penstock.errors import BadRowError

if TYPE_CHECKING:
    import pandas as pd

    from penstock.sql import Table

Convert = Callable[[pa.Field], pa.Array]


def to_arrow(
    table: Table, schema: pa.Schema, rows: Any, *, delete: bool, defaults: Mapping[str, Any]
) -> pa.Table:
    """`rows` as an Arrow table with the columns of `schema` and `_op`.

    A missing column takes its value from `defaults` or is NULL. Deleting from a table with a key needs
    only the key columns, the others are NULL in the result; without a key it needs the whole row.
    """
    target = _Target(table, schema, defaults, delete)
    given = _given(target, rows)
    arrays: list[pa.Array] = []
    problems: list[tuple[int, int, str]] = []
    for index, field in enumerate(schema):
        try:
            arrays.append(_column(target, given, field))
        except BadValueError as bad:
            problems.append((bad.row, index, _describe(table, field, bad)))
    if problems:
        raise BadRowError(min(problems)[2])
    op = pa.repeat(pa.scalar(DELETE if delete else INSERT, pa.int8()), given.length)
    return pa.table([*arrays, op], schema=schema.append(OP_FIELD))


@dataclass(frozen=True)
class _Target:
    """Where the rows go, and what holds for the columns they do not have."""

    table: Table
    schema: pa.Schema
    defaults: Mapping[str, Any]
    delete: bool

    @property
    def only_key(self) -> bool:
        return self.delete and bool(self.table.primary_key)

    def ignores(self, field: pa.Field) -> bool:
        return self.only_key and field.name.lower() not in {name.lower() for name in self.table.primary_key}

    def absent(self, field: pa.Field) -> Any:
        """The value of a column that a row does not have."""
        if self.only_key:
            raise BadValueError("is missing; deleting needs all columns of the key", None)
        if self.delete:
            raise BadValueError("is missing; deleting from a table without a key needs the whole row", None)
        if field.name in self.defaults:
            return self.defaults[field.name]
        if not field.nullable:
            raise BadValueError("is missing; it is NOT NULL and has no default", None)
        return None


@dataclass(frozen=True)
class _Given:
    """The rows a caller gave: how many, and how to convert each column of the table they have."""

    length: int
    columns: Mapping[str, Convert]


def _column(target: _Target, given: _Given, field: pa.Field) -> pa.Array:
    if target.ignores(field) or given.length == 0:
        return pa.nulls(given.length, field.type)
    convert = given.columns.get(field.name)
    if convert is None:
        return pa.repeat(to_array([target.absent(field)], field.type)[0], given.length)
    array = convert(field)
    if array.null_count and not field.nullable:
        raise BadValueError(
            "is NULL, and the column is NOT NULL", None, row=pc.index(pc.is_null(array), True).as_py()
        )
    return array


def _given(target: _Target, rows: Any) -> _Given:
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _from_arrow(target, rows)
    if _is_pandas(rows):
        return _from_pandas(target, rows)
    if isinstance(rows, (Mapping, str, bytes)) or not isinstance(rows, Iterable):
        raise BadRowError(
            f"table {target.table.name}: expected a list of dicts, a pyarrow Table or RecordBatch, "
            f"or a pandas DataFrame; found {a_kind(rows)}"
        )
    return _from_dicts(target, list(rows))


def _is_pandas(rows: Any) -> bool:
    """Without importing pandas for callers who do not use it."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def _from_arrow(target: _Target, rows: pa.Table) -> _Given:
    def column(position: int) -> Convert:
        return lambda field: cast_column(rows.column(position).combine_chunks(), field.type)

    positions = _match(target, rows.column_names)
    return _Given(rows.num_rows, {name: column(position) for name, position in positions.items()})


def _from_pandas(target: _Target, rows: pd.DataFrame) -> _Given:
    def column(position: int) -> Convert:
        return lambda field: _pandas_column(rows.iloc[:, position], field.type)

    positions = _match(target, list(rows.columns))
    return _Given(len(rows), {name: column(position) for name, position in positions.items()})


def _pandas_column(series: pd.Series[Any], kind: pa.DataType) -> pa.Array:
    """NaN in a column that is not of floats is how pandas writes NULL."""
    floats = pt.is_floating(kind)
    if series.dtype == object:
        return to_array([_pandas_value(value, keep_nan=floats) for value in series], kind)
    array = pa.array(series, from_pandas=not floats)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return cast_column(array, kind, from_pandas=True)


def _pandas_value(value: Any, *, keep_nan: bool) -> Any:
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float) and value != value and not keep_nan:
        return None
    return value


def _from_dicts(target: _Target, rows: list[Any]) -> _Given:
    shapes: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadRowError(f"table {target.table.name}, {_row(number)}: is {a_kind(row)}, expected a dict")
        shape = tuple(row)
        if shape not in shapes:
            positions = _match(target, shape, number)
            shapes[shape] = {name: shape[position] for name, position in positions.items()}

    def column(name: str) -> Convert:
        if len(shapes) == 1:
            key = next(iter(shapes.values()))[name]
            return lambda field: to_array([row[key] for row in rows], field.type)
        return lambda field: to_array(_uneven(target, field, rows, shapes), field.type)

    names = {name for spelling in shapes.values() for name in spelling}
    return _Given(len(rows), {name: column(name) for name in names})


def _uneven(
    target: _Target, field: pa.Field, rows: list[Any], shapes: Mapping[tuple[Any, ...], Mapping[str, Any]]
) -> list[Any]:
    """The values of a column that some rows have and others do not."""
    values: list[Any] = []
    for number, row in enumerate(rows):
        spelling = shapes[tuple(row)]
        try:
            values.append(row[spelling[field.name]] if field.name in spelling else target.absent(field))
        except BadValueError as bad:
            raise bad.at(number) from None
    return values


def _match(target: _Target, names: Sequence[Any], row: int | None = None) -> dict[str, int]:
    """Column of the table -> position of the given column, whatever the case of its letters."""
    declared = {name.lower(): name for name in target.schema.names}
    where = f"table {target.table.name}" + ("" if row is None else f", {_row(row)}")
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        column = declared.get(str(name).lower())
        if column is None:
            near = difflib.get_close_matches(str(name).lower(), declared, n=1)
            hint = (
                f"did you mean '{declared[near[0]]}'?" if near else f"it has {', '.join(target.schema.names)}"
            )
            raise BadRowError(f"{where}: the table has no column '{name}'; {hint}")
        if column in positions:
            raise BadRowError(f"{where}: the column '{column}' is given twice")
        positions[column] = position
    return positions


def _row(number: int) -> str:
    return f"row {number} (counting from 0)"


_SHOWN = 80
"""Longest value shown in a message."""


def _describe(table: Table, field: pa.Field, bad: BadValueError) -> str:
    shown = repr(bad.value)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    subject = "" if bad.value is None else f"{shown} "
    return (
        f"table {table.name}, {_row(bad.row)}, column '{field.name}{bad.where}' {sql_name(field.type)}: "
        f"{subject}{bad.reason}"
    )
