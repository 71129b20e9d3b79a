"""Properties of tables and views: `WITH ('key' = 'value')`, or Spark's OPTIONS and TBLPROPERTIES."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.sql.cursor import Cursor
from penstock.sql.literals import Literal, read_literal
from penstock.sql.nearest import suggestion
from penstock.sql.source import Kind, Token


@dataclass(frozen=True)
class Property:
    """One `'key' = 'value'`; `key_token` is where an error about it points."""

    key: str
    key_token: Token
    literal: Literal


def _check_boolean(cursor: Cursor, prop: Property) -> None:
    if prop.literal.value.lower() not in ("true", "false"):
        message = f"property '{prop.key}' is '{prop.literal.value}'; expected 'true' or 'false'"
        raise cursor.error(message, prop.literal.offsets[0])


def _accept_any(cursor: Cursor, prop: Property) -> None:
    """What the value must be is checked where it is read."""


_Check = Callable[[Cursor, Property], None]
TABLE_PROPERTIES: Mapping[str, _Check] = {
    "materialized": _check_boolean,
    "append_only": _check_boolean,
    "skip_unused_columns": _check_boolean,
    "connectors": _accept_any,
    "comment": _accept_any,
}
VIEW_PROPERTIES: Mapping[str, _Check] = {"connectors": _accept_any, "comment": _accept_any}


def read_properties(cursor: Cursor) -> list[Property]:
    """The list in parentheses that comes next."""
    cursor.expect("(", instead="( and properties, such as ('append_only' = 'true')")
    found = [_read_property(cursor)]
    while cursor.accept(","):
        found.append(_read_property(cursor))
    cursor.expect(")", instead="',' and another property, or ')'")
    return found


def read_comment(cursor: Cursor, keyword: Token) -> Property:
    """The text after COMMENT, which Spark keeps as a property too."""
    return Property("comment", keyword, cursor.string("the text of COMMENT"))


def check_properties(
    cursor: Cursor, props: Iterable[Property], known: Mapping[str, _Check], what: str
) -> None:
    """Refuse unknown keys, keys given twice, and values that the key cannot have.

    A key with a dot, such as 'owner.team', is the user's own and may have any value.
    """
    seen: set[str] = set()
    for prop in props:
        if prop.key in seen:
            raise cursor.error(f"property '{prop.key}' is given twice", prop.key_token)
        seen.add(prop.key)
        if prop.key in known:
            known[prop.key](cursor, prop)
        elif "." not in prop.key:
            raise _unknown(cursor, prop, known, what)


def _unknown(cursor: Cursor, prop: Property, known: Mapping[str, _Check], what: str) -> Exception:
    if prop.key in TABLE_PROPERTIES:
        instead = " (write CREATE MATERIALIZED VIEW)" if prop.key == "materialized" else ""
        return cursor.error(f"property '{prop.key}' is for tables only{instead}", prop.key_token)
    hint = suggestion(prop.key, known, f"properties of a {what}")
    return cursor.error(f"unknown property '{prop.key}'; {hint}", prop.key_token)


def _read_property(cursor: Cursor) -> Property:
    key_token = cursor.peek()
    if key_token.kind is Kind.STRING:
        # One token only: Spark allows `'key' 'value'`, which anywhere else would be one string.
        key = read_literal([cursor.take()]).value
    else:
        key = cursor.name("a property, such as 'append_only' = 'true'").text
        while cursor.accept("."):
            key += "." + cursor.name("the rest of the property's key").text
    cursor.accept("=")
    return Property(key, key_token, _read_value(cursor, key))


def _read_value(cursor: Cursor, key: str) -> Literal:
    value = cursor.peek()
    if value.kind is Kind.NUMBER or value.is_word("TRUE") or value.is_word("FALSE"):
        cursor.take()
        return Literal(value.text, tuple(range(value.start, value.end + 1)))
    return cursor.string(f"the value of property '{key}', a string")
