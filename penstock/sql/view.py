"""CREATE VIEW: its kind, columns and properties, and the exact text of its query."""

from __future__ import annotations

from penstock.sql.connectors import read_connectors
from penstock.sql.cursor import Cursor
from penstock.sql.program import View, ViewKind
from penstock.sql.properties import VIEW_PROPERTIES, Property, check_properties, read_comment, read_properties
from penstock.sql.source import Kind, Token

_QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
_CLOSING = {"(": ")", "[": "]"}


def read_view(cursor: Cursor, name: Token, kind: ViewKind, start: int) -> View:
    """The view whose name was just read, without what it reads; `start` is where its statement begins."""
    columns = _read_columns(cursor) if cursor.sees("(") else ()
    props = _read_clauses(cursor)
    check_properties(cursor, props, VIEW_PROPERTIES, "view")
    listed = next((prop for prop in props if prop.key == "connectors"), None)
    if listed is not None and kind is ViewKind.LOCAL:
        raise cursor.error(
            "a local view has no outputs; write CREATE VIEW, or remove 'connectors'", listed.key_token
        )
    query_start, query_end = _read_query(cursor)
    line, column = cursor.source.place(start)
    query_line, query_column = cursor.source.place(query_start)
    return View(
        name=name.text,
        kind=kind,
        query=cursor.source.text[query_start:query_end],
        columns=columns,
        properties={prop.key: prop.literal.value for prop in props},
        connectors=() if listed is None else read_connectors(cursor, name.text, listed),
        depends_on=(),
        line=line,
        column=column,
        query_line=query_line,
        query_column=query_column,
    )


def _read_columns(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    columns: list[str] = []
    while True:
        name = cursor.name("a column name")
        if name.text.lower() in (column.lower() for column in columns):
            raise cursor.error(f"duplicate column '{name.text}'", name)
        columns.append(name.text)
        if cursor.accept("COMMENT"):
            cursor.string("the text of COMMENT")
        if not cursor.accept(","):
            break
    cursor.expect(")", instead="',' and another column, or ')' (a view's columns have names only, no types)")
    return tuple(columns)


def _read_clauses(cursor: Cursor) -> list[Property]:
    props: list[Property] = []
    while not cursor.accept("AS"):
        at = cursor.peek()
        if cursor.accept("WITH") or cursor.accept("TBLPROPERTIES"):
            props.extend(read_properties(cursor))
        elif cursor.accept("COMMENT"):
            props.append(read_comment(cursor, at))
        else:
            raise cursor.expected("AS and a query")
    return props


def _read_query(cursor: Cursor) -> tuple[int, int]:
    """Where the query starts and ends. Spark checks it later; here only what is surely wrong is refused."""
    first = cursor.peek()
    if not any(first.is_word(word) for word in _QUERY_STARTS):
        raise cursor.expected("a query after AS, such as SELECT ... FROM ...")
    open_brackets: list[Token] = []
    end = first.end
    while cursor.peek().kind is not Kind.END:
        token = cursor.take()
        end = token.end
        if token.kind is not Kind.SYMBOL:
            continue
        if token.text in _CLOSING:
            open_brackets.append(token)
        elif token.text in _CLOSING.values() and (
            not open_brackets or _CLOSING[open_brackets.pop().text] != token.text
        ):
            raise cursor.error(f"'{token.text}' closes nothing", token)
    if open_brackets:
        raise cursor.error(f"this '{open_brackets[-1].text}' is never closed", open_brackets[-1])
    return first.start, end
