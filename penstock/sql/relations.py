"""Which tables and views a query reads.

Spark resolves the names for good when the query is analyzed. They are needed before that: to bring the
views into an order, and to place the error for an unknown table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.sql.source import DIALECT, Kind, Source


@dataclass(frozen=True)
class Relation:
    """A name that a query reads: its parts, for `a.b` two, and where it is in the query."""

    parts: tuple[str, ...]
    offset: int


@dataclass(frozen=True)
class Reading:
    """All names that a query may read, by place; unless `certain`, some may be columns or the like."""

    relations: tuple[Relation, ...]
    certain: bool


def relations_read(query: str) -> Reading:
    """The relations that a query reads, common table expressions left out.

    >>> query = "WITH recent AS (SELECT * FROM orders) SELECT * FROM recent JOIN customers USING (id)"
    >>> [relation.parts for relation in relations_read(query).relations]
    [('orders',), ('customers',)]
    """
    try:
        tree = sqlglot.parse_one(query, read=DIALECT)
    except (SqlglotError, RecursionError):
        tree = None
    if not isinstance(tree, exp.Query):
        # Not wrong for that: sqlglot does not know all of Spark's syntax.
        return Reading(tuple(_names(query)), certain=False)
    # Pipes are rewritten by sqlglot while it parses, so that places and names may be its own.
    certain = tree.find(exp.Command) is None and "|>" not in query
    return Reading(tuple(sorted(_tables(tree), key=lambda relation: relation.offset)), certain)


def _tables(tree: exp.Expr) -> Iterator[Relation]:
    """The tables of a syntax tree, with the names of common table expressions taken in their scope."""
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, exp.Hint):
            continue
        ctes = node.args.get("with_")
        if isinstance(ctes, exp.With):
            for cte in ctes.expressions:
                name = cte.alias.lower()
                # Only a recursive one sees itself; `WITH t AS (SELECT * FROM t)` reads the table t.
                stack.append((cte.this, scope | {name} if ctes.recursive else scope))
                scope |= {name}
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            if len(node.parts) > 1 or node.name.lower() not in scope:
                yield _relation(node.parts)
        elif isinstance(node, exp.Anonymous) and node.name.upper() == "TABLE":
            # f(TABLE(orders)): a table as the argument of a table function.
            for argument in node.expressions:
                if isinstance(argument, exp.Column) and argument.name.lower() not in scope:
                    yield _relation(argument.parts)
            continue
        stack.extend((child, scope) for child in node.iter_expressions() if child is not ctes)


def _relation(parts: list[exp.Expr]) -> Relation:
    return Relation(tuple(part.name for part in parts), parts[0].meta.get("start", 0))


def _names(query: str) -> Iterator[Relation]:
    """Every name that could be a relation, judged by the tokens around it."""
    tokens = Source(query).tokens()
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.kind not in (Kind.WORD, Kind.QUOTED):
            continue
        if before is not None and (before.is_word(".") or before.is_word("AS")):
            continue
        if after is not None and (after.is_word(".") or after.is_word("(")):
            continue
        if (
            after is not None
            and after.is_word("AS")
            and index + 2 < len(tokens)
            and tokens[index + 2].is_word("(")
        ):
            continue
        yield Relation((token.text,), token.start)
