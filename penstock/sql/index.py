"""CREATE INDEX name ON view (columns): columns that tell the rows of a view apart, for outputs with keys."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.cursor import Cursor
from penstock.sql.source import Kind, Token


@dataclass(frozen=True)
class Index:
    """What the statement says, before it is known whether there is such a view."""

    name: Token
    view: Token
    columns: tuple[str, ...]
    cursor: Cursor


def read_index(cursor: Cursor) -> Index | None:
    """The index that a statement declares; None if it declares something else."""
    if not cursor.accept("CREATE", "INDEX"):
        return None
    cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("the name of the index")
    cursor.statement += f", CREATE INDEX {name.text}"
    cursor.expect("ON", instead="ON and a view")
    view = cursor.name("the name of a view")
    columns = cursor.names("column")
    for position, token in enumerate(columns):
        if token.text.lower() in (other.text.lower() for other in columns[:position]):
            raise cursor.error(f"column '{token.text}' is in the index twice", token)
    if cursor.peek().kind is not Kind.END:
        raise cursor.expected("the end of the statement")
    return Index(name, view, tuple(token.text for token in columns), cursor)
