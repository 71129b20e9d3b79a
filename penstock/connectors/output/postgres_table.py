"""The table that `postgres_output` writes: its columns, its key, and the statements that change it.

Rows travel as JSON and are taken apart by the server (`json_to_recordset`), so that each value is read by the
input function of its column's own type and nothing needs to be known here about how it is stored.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.types as pt
from psycopg import sql

from penstock.connectors.misfit import is_variant, sql_name
from penstock.connectors.output.encode import to_json
from penstock.errors import ConnectorError

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, t.typname), t.typcategory,
       a.atttypmod, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> ''
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT i.indisprimary,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int[]) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid
"""

Encode = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """A column of the table; `required`: a row must have a value for it."""

    name: str
    declared: str
    type: str
    category: str
    modifier: int
    required: bool
    generated: bool


@dataclass(frozen=True)
class PostgresTable:
    """A table, and which of its columns take the columns of the changes (in their order)."""

    name: sql.Identifier
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...]
    """The columns of each unique key, the primary one first."""

    @classmethod
    def find(cls, connection: psycopg.Connection[Any], name: str) -> PostgresTable | None:
        """The table of that name, exactly as it is spelled; `schema.table` if it has a point."""
        identifier = sql.Identifier(*name.split(".", 1))
        quoted = identifier.as_string(connection)
        found = connection.execute("SELECT to_regclass(%s)::oid", (quoted,)).fetchone()
        if found is None or found[0] is None:
            return None
        columns = connection.execute(_COLUMNS, (found[0],)).fetchall()
        keys = connection.execute(_KEYS, (found[0],)).fetchall()
        return cls(identifier, tuple(Column(*row) for row in columns), tuple(tuple(row[1]) for row in keys))

    def column(self, name: str) -> Column | None:
        """The column that takes a column of the view: spelled the same, or else in other cases."""
        exact = next((column for column in self.columns if column.name == name), None)
        return exact or next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def matched(self, schema: pa.Schema, where: str) -> list[Column]:
        """The columns for those of `schema`; an error that names each one that does not fit."""
        matched: list[Column] = []
        for field in schema:
            column = self.column(field.name)
            if column is None:
                raise ConnectorError(f"{where} has no column '{field.name}'")
            if column.generated:
                raise ConnectorError(f"{where}: column '{column.name}' is generated and cannot be written")
            if not fits(field.type, column):
                raise ConnectorError(
                    f"{where}: column '{column.name}' is {column.declared}, which cannot hold every"
                    f" {sql_name(field.type)}; change the column, or cast in the view"
                )
            matched.append(column)
        for column in self.columns:
            if column.required and column not in matched:
                raise ConnectorError(
                    f"{where}: column '{column.name}' is NOT NULL without a default, and the view has no such"
                    " column"
                )
        return matched


# -- types ----------------------------------------------------------------------------------------

_INTEGERS = ("int2", "int4", "int8", "numeric")


def fits(kind: pa.DataType, column: Column) -> bool:
    """Whether the column takes every value of `kind` unchanged, or refuses it: none is rounded or cut off."""
    there = column.type
    if is_variant(kind):
        return False
    if pt.is_decimal(kind):
        scale = (column.modifier - 4) & 0x7FF if column.modifier >= 4 else kind.scale
        return there == "numeric" and scale >= kind.scale
    if pt.is_string(kind) or pt.is_large_string(kind):
        return column.category in "SUEI" and there not in ("bytea", "bpchar")
    if pt.is_nested(kind) and there in ("json", "jsonb"):
        return True
    if pt.is_list(kind):
        return column.category == "A"
    if pt.is_struct(kind):
        return column.category == "C"
    accepted = next((types for test, types in _ACCEPTED if test(kind)), ())
    return there in accepted


_ACCEPTED: tuple[tuple[Callable[[pa.DataType], bool], tuple[str, ...]], ...] = (
    (pt.is_boolean, ("bool",)),
    (pt.is_integer, _INTEGERS),
    (pt.is_float32, ("float4", "float8")),
    (pt.is_float64, ("float8",)),
    (pt.is_binary, ("bytea",)),
    (pt.is_date, ("date",)),
    (pt.is_timestamp, ("timestamptz", "timestamp")),
    (pt.is_duration, ("interval",)),
)


def postgres_type(kind: pa.DataType) -> str | None:
    """The type of a column that is created for `kind`; None if there is none."""
    if is_variant(kind):
        return None
    if pt.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pt.is_nested(kind):
        return "jsonb"
    if pt.is_int8(kind):
        return "int2"
    return next((name for test, name in _CREATED if test(kind)), None)


_CREATED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_boolean, "bool"),
    (pt.is_int16, "int2"),
    (pt.is_int32, "int4"),
    (pt.is_int64, "int8"),
    (pt.is_float32, "float4"),
    (pt.is_float64, "float8"),
    (pt.is_string, "text"),
    (pt.is_binary, "bytea"),
    (pt.is_date, "date"),
    (pt.is_duration, "interval"),
)


def encoder(kind: pa.DataType) -> Encode:
    """A function from a value (not None) to the JSON that PostgreSQL reads as the same value."""
    if pt.is_binary(kind):
        return lambda value: "\\x" + value.hex()
    if pt.is_duration(kind):
        return lambda value: f"{value // dt.timedelta(microseconds=1)} microseconds"
    if pt.is_map(kind):
        key, item = _optional(kind.key_type), _optional(kind.item_type)
        return lambda value: {_text(key(k)): item(v) for k, v in value}
    if pt.is_list(kind):
        element = _optional(kind.value_type)
        return lambda value: [element(item) for item in value]
    if pt.is_struct(kind):
        inner = {kind.field(i).name: _optional(kind.field(i).type) for i in range(kind.num_fields)}
        return lambda value: {name: encode(value[name]) for name, encode in inner.items()}
    return to_json


def _optional(kind: pa.DataType) -> Encode:
    if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_string(kind):
        return lambda value: value
    inner = encoder(kind)
    return lambda value: None if value is None else inner(value)


def _text(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


# -- statements -----------------------------------------------------------------------------------


def in_json(rows: pa.Table, columns: Sequence[Column], max_rows: int | None, max_bytes: int) -> Iterator[str]:
    """The rows as JSON arrays of objects, each with so many rows and about so many bytes at most."""
    encoders = [_optional(field.type) for field in rows.schema]
    names = [column.name for column in columns]
    values = [column.to_pylist() for column in rows.columns]
    texts: list[str] = []
    size = 0
    for row in zip(*values, strict=True):
        record = {n: encode(v) for n, encode, v in zip(names, encoders, row, strict=True)}
        texts.append(json.dumps(record, ensure_ascii=False))
        size += len(texts[-1])
        if size >= max_bytes or len(texts) == max_rows:
            yield f"[{','.join(texts)}]"
            texts, size = [], 0
    if texts:
        yield f"[{','.join(texts)}]"


def _records(columns: Sequence[Column]) -> sql.Composed:
    fields = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(c.declared)) for c in columns]
    return sql.SQL("json_to_recordset(%s::json) AS r({})").format(sql.SQL(", ").join(fields))


def insert(table: PostgresTable, columns: Sequence[Column], conflict: sql.Composable) -> sql.Composed:
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} {}").format(
        table.name, names, names, _records(columns), conflict
    )


def on_conflict(columns: Sequence[Column], key: Sequence[Column], *, keep: bool) -> sql.Composable:
    """What happens to a row whose key is there: it is replaced, or with `keep` left as it is."""
    target = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    rest = [sql.Identifier(column.name) for column in columns if column not in key]
    if keep or not rest:
        return sql.SQL("ON CONFLICT ({}) DO NOTHING").format(target)
    values = sql.SQL(", ").join(sql.SQL("{} = EXCLUDED.{}").format(name, name) for name in rest)
    return sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(target, values)


def delete(table: PostgresTable, key: Sequence[Column]) -> sql.Composed:
    same = [sql.SQL("t.{} = r.{}").format(sql.Identifier(c.name), sql.Identifier(c.name)) for c in key]
    return sql.SQL("DELETE FROM {} AS t USING {} WHERE {}").format(
        table.name, _records(key), sql.SQL(" AND ").join(same)
    )


def create(name: str, schema: pa.Schema, key: Sequence[str], where: str) -> sql.Composed:
    columns = []
    for field in schema:
        kind = postgres_type(field.type)
        if kind is None:
            raise ConnectorError(
                f"{where}: PostgreSQL has no type for column '{field.name}' of type {sql_name(field.type)};"
                " cast it in the view"
            )
        columns.append(sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(kind)))
    if key:
        names = sql.SQL(", ").join(sql.Identifier(column) for column in key)
        columns.append(sql.SQL("PRIMARY KEY ({})").format(names))
    return sql.SQL("CREATE TABLE {} ({})").format(
        sql.Identifier(*name.split(".", 1)), sql.SQL(", ").join(columns)
    )
