"""`INSERT INTO table [(columns)] query`, the one statement that changes a running pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from penstock.errors import ProgramError


@dataclass(frozen=True)
class Insert:
    """Which columns of a table (all of them if none is named) get the rows of a query."""

    table: str
    columns: tuple[str, ...]
    query: str


def parse_insert(text: str) -> Insert:
    """Read the statement.

    >>> parse_insert("INSERT INTO t (a, b) VALUES (1, 2)")
    Insert(table='t', columns=('a', 'b'), query='VALUES (1, 2)')
    """
    try:
        statement = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.ParseError as error:
        place = error.errors[0] if error.errors else {}
        raise ProgramError(
            f"expected INSERT INTO table VALUES ... or a query: {place.get('description', error)}",
            line=place.get("line"),
            column=place.get("col"),
        ) from error
    if not isinstance(statement, exp.Insert) or statement.args.get("overwrite"):
        raise ProgramError("expected INSERT INTO table VALUES ... or a query", line=1, column=1)
    target = statement.this
    columns: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        columns = tuple(column.name for column in target.expressions)
        target = target.this
    return Insert(target.name, columns, statement.expression.sql(dialect="spark"))
