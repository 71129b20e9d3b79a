"""What the statements of a program have in common: `CREATE [OR REPLACE] ... [IF NOT EXISTS] name`."""

from __future__ import annotations

from penstock.errors import ProgramError
from penstock.sql.cursor import Cursor
from penstock.sql.program import ViewKind
from penstock.sql.source import Kind, Token

RESERVED_PREFIX = "__penstock"

SUPPORTED = "CREATE TABLE, CREATE VIEW, CREATE MATERIALIZED VIEW, CREATE LOCAL VIEW or CREATE INDEX"

# What a reader of Spark's or of other manuals may try, and what to write here.
_INSTEAD = {
    "SELECT": "give the query a name: CREATE VIEW name AS SELECT ...",
    "WITH": "give the query a name: CREATE VIEW name AS WITH ...",
    "INSERT": "rows come from connectors and from Pipeline.insert, not from the program",
    "UPDATE": "rows change through connectors and Pipeline.insert, not in the program",
    "DELETE": "rows are deleted through connectors and Pipeline.delete, not in the program",
    "MERGE": "rows change through connectors and Pipeline.insert, not in the program",
    "DROP": "remove the CREATE statement from the program instead",
    "ALTER": "change the CREATE statement instead",
}


def read_create(cursor: Cursor) -> ViewKind | None:
    """Move behind CREATE and what follows up to the name; None says that it is a table.

    OR REPLACE and IF NOT EXISTS are allowed and mean nothing: a program declares each name once.
    """
    if not cursor.accept("CREATE"):
        first = cursor.peek()
        hint = _INSTEAD.get(first.text.upper())
        raise cursor.error(f"expected {SUPPORTED}, found {first}{f'; {hint}' if hint else ''}")
    cursor.accept("OR", "REPLACE")
    if cursor.accept("TABLE"):
        kind = None
    elif cursor.accept("VIEW"):
        kind = ViewKind.PLAIN
    elif cursor.accept("MATERIALIZED", "VIEW"):
        kind = ViewKind.MATERIALIZED
    elif cursor.accept("LOCAL", "VIEW"):
        kind = ViewKind.LOCAL
    else:
        raise _unsupported(cursor)
    cursor.accept("IF", "NOT", "EXISTS")
    return kind


def read_relation_name(cursor: Cursor, kind: ViewKind | None) -> Token:
    """The name of the table or view; from here on errors name it too."""
    what = "table" if kind is None else kind.value
    name = cursor.name(f"the name of the {what}")
    if cursor.sees("."):
        last = name
        while cursor.accept("."):
            last = cursor.name(f"the name of the {what}")
        message = f"the name of a {what} has one part: expected '{last.text}' without a schema"
        raise cursor.error(message, name)
    if name.text.lower().startswith(RESERVED_PREFIX):
        raise cursor.error(f"names that start with {RESERVED_PREFIX} are reserved", name)
    spelled = f"`{name.text}`" if name.kind is Kind.QUOTED else name.text
    cursor.statement += f", CREATE {what.upper()} {spelled}"
    return name


def _unsupported(cursor: Cursor) -> ProgramError:
    if cursor.sees("TEMPORARY") or cursor.sees("TEMP") or cursor.sees("GLOBAL"):
        return cursor.error(
            "temporary views are not supported; write CREATE LOCAL VIEW for one that only views read"
        )
    if cursor.sees("EXTERNAL"):
        return cursor.error("external tables are not supported; write CREATE TABLE with a connector")
    return cursor.error(f"expected {SUPPORTED}, found CREATE {cursor.peek().text or 'and nothing after it'}")
