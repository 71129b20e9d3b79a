"""Operators that distribute over addition: apply them to the change and carry the weight.

d f(A) = f(dA)          for projection, filter, explode, grouping sets
d (A + B) = dA + dB     for UNION ALL
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.plan import nodes
from penstock.plan.compiler import Compiler, columns


def scan(node: nodes.Scan, c: Compiler) -> DataFrame | None:
    """The change of the relation itself."""
    return c.relations.delta(node.relation)


def values(node: nodes.Values, c: Compiler) -> DataFrame | None:
    """Constant rows are inserted once, in the initial transaction, and never change."""
    return c.catalyst.values(node).coalesce(1) if c.initial else None


def project(node: nodes.Project, c: Compiler) -> DataFrame | None:
    if (child := c.delta(node.child)) is None:
        return None
    bound = c.catalyst.bind(child, node.child.output)
    return c.catalyst.select(bound, [e.ref for e in node.expressions])


def filter_(node: nodes.Filter, c: Compiler) -> DataFrame | None:
    if (child := c.delta(node.child)) is None:
        return None
    bound = c.catalyst.filter(c.catalyst.bind(child, node.child.output), node.condition.ref)
    return c.catalyst.select(bound, [a.ref for a in node.output])


def generate(node: nodes.Generate, c: Compiler) -> DataFrame | None:
    if (child := c.delta(node.child)) is None:
        return None
    bound = c.catalyst.generate(c.catalyst.bind(child, node.child.output), node.ref)
    return c.catalyst.select(bound, [a.ref for a in node.output])


def expand(node: nodes.Expand, c: Compiler) -> DataFrame | None:
    if (child := c.delta(node.child)) is None:
        return None
    bound = c.catalyst.expand(c.catalyst.bind(child, node.child.output), node)
    return c.gathered(c.catalyst.select(bound, [a.ref for a in node.output]))


def union(node: nodes.Union, c: Compiler) -> DataFrame | None:
    changed = [frame for child in node.inputs if (frame := c.delta(child)) is not None]
    if not changed:
        return None
    names = [*columns(changed[0]), "_w"]
    return c.union([frame.select(*names) for frame in changed])
