"""CREATE TABLE: columns, keys and properties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import ProgramError
from penstock.sql.connectors import name_connectors, read_connectors
from penstock.sql.cursor import Cursor
from penstock.sql.nearest import suggestion
from penstock.sql.program import Column, Connector, Table
from penstock.sql.properties import (
    TABLE_PROPERTIES,
    Property,
    check_properties,
    read_comment,
    read_properties,
)
from penstock.sql.source import Kind, Token
from penstock.sql.types import can_be_key, read_type
from penstock.sql.using import check_provider, file_connector, file_options

_REFUSED_CONSTRAINTS = {
    "CHECK": "filter the rows in a view",
    "UNIQUE": "declare the columns as PRIMARY KEY",
    "GENERATED": "compute the column in a view",
    "AUTO_INCREMENT": "send the value with the row",
    "LATENESS": "old rows are kept until they are deleted",
    "WATERMARK": "old rows are kept until they are deleted",
}
_REFUSED_CLAUSES = {
    "AS": "a table's rows come from its inputs; write CREATE VIEW name AS SELECT ...",
    "LIKE": "list the columns",
    "PARTITIONED": "Penstock lays out its own state; remove it",
    "CLUSTER": "Penstock lays out its own state; remove it",
    "CLUSTERED": "Penstock lays out its own state; remove it",
    "LOCATION": "name a file with USING csv OPTIONS (path '...') or with a connector",
    "STORED": "name a file with USING csv OPTIONS (path '...') or with a connector",
}


_METADATA = re.compile(
    r"\s*(?P<cast>CAST\s*\(\s*)?CONNECTOR_METADATA\s*\(\s*\)\s*\[\s*'(?P<name>\w+)'\s*\]"
    r"(?(cast)\s+AS\s+.+\))\s*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass
class _Body:
    """What was read so far of the part in parentheses."""

    columns: list[Column] = field(default_factory=list)
    types_at: list[Token] = field(default_factory=list)
    key: list[Token] | None = None
    references: list[Token] = field(default_factory=list)


@dataclass
class _Clauses:
    """What was read so far behind the columns."""

    provider: Token | None = None
    options: list[Property] = field(default_factory=list)
    properties: list[Property] = field(default_factory=list)


def read_table(cursor: Cursor, name: Token, start: int) -> Table:
    """The table whose name was just read; `start` is where its statement begins."""
    body = _read_body(cursor)
    key = _check_key(cursor, body)
    clauses = _read_clauses(cursor)
    of_file = file_options(clauses.provider, clauses.options)
    props = [*clauses.properties, *(option for option in clauses.options if option not in of_file)]
    check_properties(cursor, props, TABLE_PROPERTIES, "table")
    values = {prop.key: prop.literal.value for prop in props}
    lowered = {column.lower() for column in key}
    line, column = cursor.source.place(start)
    return Table(
        name=name.text,
        columns=tuple(
            replace(c, nullable=c.nullable and c.name.lower() not in lowered) for c in body.columns
        ),
        primary_key=key,
        append_only=values.get("append_only", "false").lower() == "true",
        materialized=values.get("materialized", "true").lower() == "true",
        properties=values,
        connectors=_read_table_connectors(cursor, name.text, props, clauses.provider, of_file),
        line=line,
        column=column,
    )


def _read_table_connectors(
    cursor: Cursor, table: str, props: Sequence[Property], provider: Token | None, of_file: Sequence[Property]
) -> tuple[Connector, ...]:
    listed = next((prop for prop in props if prop.key == "connectors"), None)
    if provider is not None and of_file:
        if listed is not None:
            raise cursor.error(
                "expected either a file in OPTIONS or 'connectors', not both", listed.key_token
            )
        return name_connectors(cursor, table, of_file[0], [file_connector(cursor, provider, of_file)])
    return () if listed is None else read_connectors(cursor, table, listed)


def _read_body(cursor: Cursor) -> _Body:
    if cursor.peek().text.upper() in _REFUSED_CLAUSES:
        raise _refused(cursor, _REFUSED_CLAUSES)
    cursor.expect("(", instead="( and the columns of the table")
    body = _Body()
    while True:
        if not _read_table_constraint(cursor, body):
            _read_column(cursor, body)
        if not cursor.accept(","):
            break
    cursor.expect(")", instead="',' and another column, or ')'")
    if not body.columns:
        raise cursor.error("the table has no columns")
    return body


def _read_column(cursor: Cursor, body: _Body) -> None:
    name = cursor.name("a column name")
    if any(name.text.lower() == column.name.lower() for column in body.columns):
        raise cursor.error(f"duplicate column '{name.text}'", name)
    cursor.accept(":")
    body.types_at.append(cursor.peek())
    data_type = read_type(cursor)
    nullable, default, metadata = True, None, None
    while True:
        at = cursor.peek()
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            pass
        elif cursor.accept("DEFAULT"):
            if default is not None:
                raise cursor.error(f"two DEFAULTs for column '{name.text}'", at)
            default = _read_expression(cursor)
            metadata = _metadata(cursor, default, at)
        elif cursor.accept("COMMENT"):
            cursor.string("the text of COMMENT")
        elif cursor.accept("PRIMARY", "KEY"):
            _set_key(cursor, body, [name], at)
        elif cursor.accept("FOREIGN", "KEY") or cursor.sees("REFERENCES"):
            _read_references(cursor)
        elif at.kind is Kind.WORD and at.text.upper() in _REFUSED_CONSTRAINTS:
            raise _refused(cursor, _REFUSED_CONSTRAINTS)
        elif cursor.sees(",") or cursor.sees(")"):
            break
        else:
            raise cursor.expected("NOT NULL, DEFAULT, PRIMARY KEY, COMMENT, ',' or ')'")
    default = default if metadata is None else None
    body.columns.append(Column(name.text, data_type, nullable, default, metadata))


def _metadata(cursor: Cursor, default: str, at: Token) -> str | None:
    """What a DEFAULT asks of the connector that a row came from."""
    if "CONNECTOR_METADATA" not in default.upper():
        return None
    found = _METADATA.fullmatch(default)
    if found is None:
        raise cursor.error(
            "expected CONNECTOR_METADATA()['name'] or CAST(CONNECTOR_METADATA()['name'] AS type) as DEFAULT;"
            " compute anything else in a view",
            at,
        )
    return found["name"].lower()


def _read_table_constraint(cursor: Cursor, body: _Body) -> bool:
    """Read `[CONSTRAINT name] PRIMARY KEY (...)` or `FOREIGN KEY (...) REFERENCES ...` if it comes next."""
    named = cursor.sees("CONSTRAINT") and not cursor.peek(2).is_word(",")
    if named:
        cursor.take()
        cursor.name("the name of the constraint")
    at = cursor.peek()
    if cursor.accept("PRIMARY", "KEY"):
        _set_key(cursor, body, cursor.names("key column"), at)
        _skip_characteristics(cursor)
    elif cursor.accept("FOREIGN", "KEY"):
        body.references.extend(cursor.names("column"))
        _read_references(cursor)
    elif named or (
        at.kind is Kind.WORD and at.text.upper() in ("CHECK", "UNIQUE") and cursor.peek(1).is_word("(")
    ):
        if at.text.upper() in _REFUSED_CONSTRAINTS:
            raise _refused(cursor, _REFUSED_CONSTRAINTS)
        raise cursor.expected("PRIMARY KEY or FOREIGN KEY")
    else:
        return False
    return True


def _read_references(cursor: Cursor) -> None:
    """Move behind a foreign key. As in Spark it tells readers something; it is not enforced."""
    cursor.expect("REFERENCES", instead="REFERENCES and a table")
    cursor.name("the name of a table")
    if cursor.sees("("):
        cursor.names("column")
    _skip_characteristics(cursor)


def _skip_characteristics(cursor: Cursor) -> None:
    while cursor.accept("NOT", "ENFORCED") or cursor.accept("RELY") or cursor.accept("NORELY"):
        pass


def _set_key(cursor: Cursor, body: _Body, columns: list[Token], at: Token) -> None:
    if body.key is not None:
        names = ", ".join(token.text for token in [*body.key, *columns])
        message = f"the table has two primary keys; write PRIMARY KEY ({names}) for one of several columns"
        raise cursor.error(message, at)
    body.key = columns


def _check_key(cursor: Cursor, body: _Body) -> tuple[str, ...]:
    """The key's columns as they are declared."""
    columns = {column.name.lower(): column for column in body.columns}
    for token in [*(body.key or []), *body.references]:
        if token.text.lower() not in columns:
            hint = suggestion(token.text, [c.name for c in body.columns], "columns")
            raise cursor.error(f"unknown column '{token.text}' in a key; {hint}", token)
    key: list[str] = []
    for token in body.key or []:
        column = columns[token.text.lower()]
        if column.name in key:
            raise cursor.error(f"column '{column.name}' is in the primary key twice", token)
        if not can_be_key(column.type):
            message = (
                f"column '{column.name}' of type {column.type.simpleString()} cannot be in a primary key"
            )
            raise cursor.error(f"{message}: maps and variants have no equality", token)
        key.append(column.name)
    return tuple(key)


def _read_expression(cursor: Cursor) -> str:
    """The source text of a DEFAULT: up to the next constraint, or comma or parenthesis of the column list."""
    start = cursor.peek()
    depth, end = 0, start.start
    last: Token | None = None
    while cursor.peek().kind is not Kind.END:
        token = cursor.peek()
        if depth == 0 and _ends_default(cursor, last):
            break
        depth += token.text in ("(", "[") and token.kind is Kind.SYMBOL
        depth -= token.text in (")", "]") and token.kind is Kind.SYMBOL
        last = cursor.take()
        end = last.end
    if last is None:
        raise cursor.expected("an expression after DEFAULT")
    return cursor.source.text[start.start : end]


def _ends_default(cursor: Cursor, last: Token | None) -> bool:
    if cursor.sees(",") or cursor.sees(")"):
        return True
    if last is None:
        return False
    if cursor.sees("NOT", "NULL"):
        return not last.is_word("IS")
    return any(
        cursor.sees(*words)
        for words in (("COMMENT",), ("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("REFERENCES",), ("DEFAULT",))
    )


def _read_clauses(cursor: Cursor) -> _Clauses:
    clauses = _Clauses()
    while cursor.peek().kind is not Kind.END:
        at = cursor.peek()
        if cursor.accept("WITH") or cursor.accept("TBLPROPERTIES"):
            clauses.properties.extend(read_properties(cursor))
        elif cursor.accept("OPTIONS"):
            clauses.options.extend(read_properties(cursor))
        elif cursor.accept("USING"):
            if clauses.provider is not None:
                raise cursor.error("USING is given twice", at)
            clauses.provider = cursor.name("the name of a file format")
            check_provider(cursor, clauses.provider)
        elif cursor.accept("COMMENT"):
            clauses.properties.append(read_comment(cursor, at))
        elif at.kind is Kind.WORD and at.text.upper() in _REFUSED_CLAUSES:
            raise _refused(cursor, _REFUSED_CLAUSES)
        else:
            raise cursor.expected("WITH (...), USING, OPTIONS (...), TBLPROPERTIES (...), COMMENT or ';'")
    return clauses


def _refused(cursor: Cursor, reasons: dict[str, str]) -> ProgramError:
    word = cursor.peek().text.upper()
    return cursor.error(f"{word} is not supported in CREATE TABLE: {reasons[word]}")
