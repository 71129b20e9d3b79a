"""Conditions on rows, written in SQL: comparisons of columns with constants, joined by AND, OR and NOT."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import sqlglot
from sqlglot import exp

from penstock.connectors.misfit import MISFITS, sql_name
from penstock.connectors.text import parse_text
from penstock.errors import ConnectorError

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: lambda left, right: left == right,
    exp.NEQ: lambda left, right: left != right,
    exp.LT: lambda left, right: left < right,
    exp.LTE: lambda left, right: left <= right,
    exp.GT: lambda left, right: left > right,
    exp.GTE: lambda left, right: left >= right,
}


class Predicate:
    """A condition; a row for which it is NULL does not satisfy it.

    >>> rows = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    >>> rows.filter(Predicate("a > 1 OR b = 'x'", "filter").over(rows.schema)).column("b").to_pylist()
    ['x', 'y']
    """

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self._where = where
        try:
            self._parsed = sqlglot.parse_one(text, dialect="spark")
        except sqlglot.ParseError as error:
            raise ConnectorError(f"{where}: {text!r} is not a condition in SQL") from error
        self.columns = {column.name.lower() for column in self._parsed.find_all(exp.Column)}

    def over(self, schema: pa.Schema) -> pc.Expression:
        """The condition for rows with these columns; `ConnectorError` if it asks for what is not there."""
        self._schema = {field.name.lower(): field for field in schema}
        condition = self._condition(self._parsed)
        try:
            schema.empty_table().filter(condition)
        except MISFITS as error:
            raise ConnectorError(f"{self._where}: {self.text!r} compares different types: {error}") from error
        return condition

    def _condition(self, node: exp.Expr) -> pc.Expression:
        if isinstance(node, exp.Paren):
            return self._condition(node.this)
        if isinstance(node, exp.And):
            return self._condition(node.left) & self._condition(node.right)
        if isinstance(node, exp.Or):
            return self._condition(node.left) | self._condition(node.right)
        if isinstance(node, exp.Not):
            return ~self._condition(node.this)
        if isinstance(node, exp.Boolean):
            return pc.scalar(bool(node.this))
        if isinstance(node, exp.Column):
            return self._field(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return pc.is_null(self._value(node.this, None))
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            return self._compared(exp.GTE, node.this, low) & self._compared(exp.LTE, node.this, high)
        if isinstance(node, exp.In) and node.expressions:
            found = self._compared(exp.EQ, node.this, node.expressions[0])
            for item in node.expressions[1:]:
                found = found | self._compared(exp.EQ, node.this, item)
            return found
        if isinstance(node, exp.Like) and isinstance(node.expression, exp.Literal):
            return pc.match_like(self._value(node.this, None), node.expression.this)
        if type(node) in _COMPARISONS:
            return self._compared(type(node), node.this, node.expression)
        raise self._refused(node)

    def _compared(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> pc.Expression:
        return _COMPARISONS[kind](self._value(left, right), self._value(right, left))

    def _value(self, node: exp.Expr, other: exp.Expr | None) -> pc.Expression:
        """A column or a constant; a constant takes the type of the column on the other side."""
        if isinstance(node, exp.Paren):
            return self._value(node.this, other)
        if isinstance(node, exp.Column):
            return self._field(node)
        field = self._schema.get(other.name.lower()) if isinstance(other, exp.Column) else None
        return pc.scalar(self._constant(node, None if field is None else field.type))

    def _constant(self, node: exp.Expr, kind: pa.DataType | None) -> Any:
        if isinstance(node, exp.Neg):
            return -self._constant(node.this, None)
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):  # DATE '2024-01-01'
            return self._constant(node.this, kind)
        if not isinstance(node, exp.Literal):
            raise self._refused(node)
        if not node.is_string:
            number = Decimal(node.this)
            if number == number.to_integral_value():
                return int(number)
            return number if kind is not None and pt.is_decimal(kind) else float(number)
        if kind is None or pt.is_string(kind):
            return node.this
        try:
            return parse_text(pa.array([node.this]), kind)[0]
        except MISFITS as error:
            raise ConnectorError(
                f"{self._where}: {node.this!r} cannot be read as {sql_name(kind)}"
            ) from error

    def _field(self, node: exp.Column) -> pc.Expression:
        field = self._schema.get(node.name.lower())
        if field is None:
            names = ", ".join(found.name for found in self._schema.values())
            raise ConnectorError(f"{self._where}: there is no column '{node.name}'; there are {names}")
        return pc.field(field.name)

    def _refused(self, node: exp.Expr) -> ConnectorError:
        return ConnectorError(
            f"{self._where}: {node.sql(dialect='spark')!r} is not supported; only columns and constants with"
            " =, <>, <, <=, >, >=, BETWEEN, IN, LIKE and IS NULL, joined by AND, OR and NOT"
        )
