"""Aggregate functions, window functions and subqueries within expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.plan.catalyst.refs import Ref, attribute, iterate, kind, transform, type_name
from penstock.plan.nodes import Attribute


@dataclass(frozen=True)
class Function:
    """One aggregate function of an Aggregate node."""

    ref: Ref  # the AggregateExpression
    name: str
    arguments: tuple[Ref, ...]
    filter: Ref | None
    distinct: bool

    @property
    def buffer(self) -> list[Attribute]:
        """Spark's own aggregation buffer, from which `result` is computed."""
        return [attribute(a) for a in iterate(self.ref.aggregateFunction().aggBufferAttributes())]

    @property
    def result(self) -> Ref:
        """Spark's own expression for the result, over the columns of `buffer`."""
        return self.ref.aggregateFunction().evaluateExpression()


def name_of(expression: Ref) -> str:
    if kind(expression) == "AggregateExpression":
        return (
            f"{expression.aggregateFunction().prettyName()}{' distinct' if expression.isDistinct() else ''}"
        )
    return str(expression.prettyName())


def has_subquery(expressions: Iterator[Ref]) -> bool:
    """Whether any of the expressions has a scalar subquery in it."""
    return any(find_subquery(e) is not None for e in expressions)


def outside_functions(expression: Ref) -> Iterator[Ref]:
    """What there is of an expression outside of aggregate functions."""
    if kind(expression) == "AggregateExpression":
        return
    if kind(expression) == "ScalarSubquery" or expression.children().isEmpty():
        yield expression
    for child in iterate(expression.children()):
        yield from outside_functions(child)


def find_subquery(expression: Ref) -> Ref | None:
    if "subquery" not in expression.toString():
        return None
    if kind(expression) == "ScalarSubquery":
        return expression
    for child in iterate(expression.children()):
        if (found := find_subquery(child)) is not None:
            return found
    return None


def replace_subquery(expression: Ref, target: Ref, replacement: Ref) -> Ref:
    id_ = target.exprId().id()

    def rule(e: Ref) -> Ref | None:
        found = kind(e) == "ScalarSubquery" and e.exprId().id() == id_
        return replacement if found else None

    return transform(expression, rule)


def windows(expression: Ref) -> Iterator[Ref]:
    """The window expressions in an expression, which the optimizer may have wrapped."""
    if kind(expression) == "WindowExpression":
        yield expression
        return
    for child in iterate(expression.children()):
        yield from windows(child)


def is_session_window(expression: Ref) -> bool:
    column = kind(expression) == "AttributeReference"
    return column and "spark.sessionWindow" in expression.metadata().json()


def functions_of(expressions: Sequence[Ref]) -> Iterator[Function]:
    seen: set[int] = set()

    def walk(e: Ref) -> Iterator[Function]:
        if kind(e) == "AggregateExpression":
            if e.resultId().id() not in seen:
                seen.add(e.resultId().id())
                function = e.aggregateFunction()
                condition = e.filter().get() if e.filter().isDefined() else None
                arguments = tuple(iterate(function.children()))
                yield Function(e, function.prettyName(), arguments, condition, e.isDistinct())
            return
        for child in iterate(e.children()):
            yield from walk(child)

    for expression in expressions:
        yield from walk(expression)


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# A decimal of up to 27 digits times a 32-bit weight fits Spark's 38 digits exactly; a longer one still
# keeps its scale if that is at most 6.
_DECIMAL_DIGITS = 27
_DECIMAL_SCALE = 6


def not_additive(function: Function) -> str | None:
    """Why an aggregate function cannot be kept as a sum that changes add to; None if it can."""
    if function.distinct:
        return f"{function.name} distinct needs the distinct values of the group"
    if function.name == "count":
        return None
    if function.name not in ("sum", "avg"):
        return f"{function.name} cannot be updated from the change alone"
    type_ = type_name(function.arguments[0])
    if type_ in _INTEGERS:
        return None
    if type_.startswith("decimal"):
        precision, scale = digits(type_)
        if precision <= _DECIMAL_DIGITS or scale <= _DECIMAL_SCALE:
            return None
        return f"{function.name} over {type_} can exceed 38 digits on the way"
    return f"{function.name} over {type_} would drift with rounding errors"


def digits(decimal: str) -> tuple[int, int]:
    """Precision and scale of a decimal type's name.

    >>> digits("decimal(12,2)")
    (12, 2)
    """
    precision, scale = decimal[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


_BY_ROWS = ("RowNumber", "NTile", "Lag", "Lead")
_BY_PEERS = ("Rank", "DenseRank", "PercentRank", "CumeDist")


def by_rows(over: Ref) -> bool:
    """Whether a function's value depends on the order of equal rows, which may then be made total."""
    function = kind(over.windowFunction())
    if function in _BY_ROWS or function in _BY_PEERS:
        return function in _BY_ROWS
    frame = over.windowSpec().frameSpecification()
    return kind(frame) == "SpecifiedWindowFrame" and "ROWS" in frame.sql()
