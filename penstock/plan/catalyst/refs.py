"""Small things to do with objects of the JVM: sequences, attributes, expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext

from penstock.plan.catalyst.jvm import active_jvm
from penstock.plan.nodes import Attribute, Expression, Node

Ref = Any  # an object of the JVM

_ID = re.compile(r"#(\d+)L?")
_LAMBDA = re.compile(r"\blambda (\w+)#")


_AT_ONCE = 10  # what Java's List.of takes in one call


def seq(items: Sequence[Ref]) -> Ref:
    jvm = active_jvm()
    if not items:
        return jvm.nothing
    parts = [jvm.list.of(*items[i : i + _AT_ONCE]) for i in range(0, len(items), _AT_ONCE)]
    first, *others = (jvm.python.toSeq(part) for part in parts)
    return reduce(lambda joined, part: joined.concat(part), others, first)


def iterate(seq: Ref) -> Iterator[Ref]:
    for i in range(seq.length()):
        yield seq.apply(i)


def is_plan(ref: Ref) -> bool:
    context = SparkContext._active_spark_context
    assert context is not None
    plan = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
    return bool(is_instance_of(context._gateway, ref, plan))


def attribute(ref: Ref) -> Attribute:
    return Attribute(ref.exprId().id(), ref.name(), ref)


def walk(expression: Ref) -> Iterator[Ref]:
    """An expression and everything in it."""
    yield expression
    for child in iterate(expression.children()):
        yield from walk(child)


def kind(ref: Ref) -> str:
    """The name of a node's or an expression's class."""
    return str(ref.productPrefix())


def type_name(ref: Ref) -> str:
    """The type of an expression, as SQL spells it."""
    return str(ref.dataType().simpleString())


def is_nullable(ref: Ref) -> bool:
    """Whether an expression can be NULL."""
    return bool(ref.nullable())


def attribute_id(expression: Expression) -> int | None:
    """Which column an expression is, if it is nothing but a column."""
    ref = unaliased(expression.ref)
    return int(ref.exprId().id()) if kind(ref) == "AttributeReference" else None


def expression_of(ref: Ref, *inputs: Node) -> Expression:
    """An expression with a text that is the same in every planning run: ids become input positions."""
    positions = {a.id: f"${i}.{j}" for i, n in enumerate(inputs) for j, a in enumerate(n.output)}
    others: dict[int, str] = {}

    def place(match: re.Match[str]) -> str:
        id_ = int(match[1])
        return positions.get(id_) or others.setdefault(id_, f"${len(others)}")

    plain = unaliased(ref)
    text, sql = plain.toString(), plain.sql()
    for i, variable in enumerate(dict.fromkeys(_LAMBDA.findall(text))):  # named by a counter of the process
        text, sql = (re.sub(rf"\b{variable}\b", f"x{i}", t) for t in (text, sql))
    text = _ID.sub(place, text)
    # Spark's text does not quote strings, its SQL does not tell columns apart: together they are unique.
    return Expression(ref, text, f"{text} {sql}")


def expressions_of(refs: Sequence[Ref] | Iterator[Ref], child: Node) -> tuple[Expression, ...]:
    return tuple(expression_of(ref, child) for ref in refs)


def unaliased(expression: Ref) -> Ref:
    return expression.child() if kind(expression) == "Alias" else expression


def constant(expression: Ref) -> int:
    return int(expression.eval(None))


def transform(expression: Ref, rule: Callable[[Ref], Ref | None]) -> Ref:
    """Replace, from the top down, what `rule` gives a replacement for."""
    replaced = rule(expression)
    if replaced is not None:
        return replaced
    children = list(iterate(expression.children()))
    if not children:
        return expression
    changed = [transform(child, rule) for child in children]
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expression
    return expression.withNewChildren(seq(changed))
