"""A program as data: its tables, its views, and the connectors on both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType


@dataclass(frozen=True)
class Column:
    """One column of a table; `default` is the SQL text of its DEFAULT expression, and `metadata` what a
    connector has to say about a row, such as `kafka_offset`, if DEFAULT asks for that."""

    name: str
    type: DataType
    nullable: bool = True
    default: str | None = None
    metadata: str | None = None


@dataclass(frozen=True)
class Connector:
    """One input of a table or output of a view, as its JSON entry describes it."""

    name: str
    config: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Table:
    """An input: rows come from connectors and the API. Its statement starts at `line` and `column`."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    append_only: bool
    materialized: bool
    properties: Mapping[str, str] = field(hash=False)
    connectors: tuple[Connector, ...]
    line: int
    column: int

    @property
    def schema(self) -> StructType:
        """The columns as Spark sees them."""
        return StructType([StructField(c.name, c.type, c.nullable) for c in self.columns])


class ViewKind(Enum):
    """How a view is used: a materialized one can be queried, a local one is only read by other views."""

    PLAIN = "view"
    MATERIALIZED = "materialized view"
    LOCAL = "local view"


@dataclass(frozen=True)
class View:
    """A query that is kept up to date.

    `query` is its exact source text, `columns` the names given in `CREATE VIEW v (a, b)` if there are any,
    and `depends_on` the tables and views it reads directly, spelled as they are declared.
    """

    name: str
    kind: ViewKind
    query: str
    columns: tuple[str, ...]
    properties: Mapping[str, str] = field(hash=False)
    connectors: tuple[Connector, ...]
    depends_on: tuple[str, ...]
    line: int
    column: int
    query_line: int
    query_column: int
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Lower-case name -> columns, of the indexes that CREATE INDEX declares: keys for outputs."""

    def locate(self, line: int, column: int) -> tuple[int, int]:
        """Where in the program a place of the query is; all four count from 1."""
        if line == 1:
            return self.query_line, self.query_column + column - 1
        return self.query_line + line - 1, column


@dataclass(frozen=True)
class Program:
    """A whole program. A view comes after every view that it reads."""

    text: str
    tables: tuple[Table, ...]
    views: tuple[View, ...]

    @property
    def meaning(self) -> tuple[tuple[Table, ...], tuple[View, ...]]:
        """What it computes: the same for two programs that differ only in connectors and in white space
        between statements."""
        tables = tuple(
            replace(t, connectors=(), properties=_plain(t.properties), line=0, column=0) for t in self.tables
        )
        views = tuple(
            replace(
                v,
                connectors=(),
                properties=_plain(v.properties),
                line=0,
                column=0,
                query_line=0,
                query_column=0,
                indexes={},
            )
            for v in self.views
        )
        return tables, views

    @property
    def connectors(self) -> dict[str, Connector]:
        """All connectors by name."""
        relations: tuple[Table | View, ...] = (*self.tables, *self.views)
        return {c.name: c for relation in relations for c in relation.connectors}


def _plain(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key != "connectors"}
