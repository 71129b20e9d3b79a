"""What the tables hold, in plain Python: the truth that the oracle is computed from."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableSchema:
    """The part of a table that decides its content: names, types and key."""

    name: str
    schema: StructType
    primary_key: tuple[str, ...] = ()

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of rows as the pipeline takes them."""
        return to_arrow_schema(self.schema, timezone="UTC")


class Action(Enum):
    """What an operation does with its rows."""

    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True)
class Operation:
    """One call of `Pipeline.insert` or `Pipeline.delete`."""

    action: Action
    table: str
    rows: tuple[Row, ...]


Transaction = tuple[Operation, ...]


def identity(value: Any) -> Hashable:
    """What Spark's equality sees: NaN is one value, -0.0 is 0.0, nested values count by content."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, Mapping):
        return tuple((key, identity(item)) for key, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(identity(item) for item in value)
    assert isinstance(value, Hashable)
    return value


@dataclass
class TableModel:
    """Rows by identity: of the key if there is one (last write wins), else of the whole row, counted."""

    table: TableSchema
    _rows: dict[Hashable, list[Row]] = field(default_factory=dict)

    def insert(self, row: Row) -> None:
        """Add the row, in place of the one with its key if there is a key."""
        held = self._rows.setdefault(self._identity(row), [])
        if self.table.primary_key:
            held.clear()
        held.append(row)

    def delete(self, row: Row) -> None:
        """Take one row away; a row that is not there is ignored."""
        name = self._identity(row)
        held = self._rows.get(name, [])
        if held:
            held.pop()
        if not held:
            self._rows.pop(name, None)

    @property
    def rows(self) -> list[Row]:
        """The content, duplicates included."""
        return [row for held in self._rows.values() for row in held]

    def to_arrow(self) -> pa.Table:
        """The content as Spark takes it."""
        return pa.Table.from_pylist(list(self.rows), schema=self.table.arrow_schema)

    def _identity(self, row: Row) -> Hashable:
        names = self.table.primary_key or tuple(self.table.schema.names)
        return tuple(identity(row[name]) for name in names)


class Model:
    """The content of all tables."""

    def __init__(self, tables: Iterable[TableSchema]) -> None:
        self.tables = {table.name: TableModel(table) for table in tables}

    def apply(self, transaction: Transaction) -> None:
        """Move to the state after the transaction."""
        for operation in transaction:
            model = self.tables[operation.table]
            change = model.insert if operation.action is Action.INSERT else model.delete
            for row in operation.rows:
                change(row)

    def deletion_of_all(self) -> Transaction:
        """The transaction that deletes everything."""
        return tuple(
            Operation(Action.DELETE, name, tuple(model.rows))
            for name, model in self.tables.items()
            if model.rows
        )
