"""ORDER BY with LIMIT and OFFSET: which rows are among the first, before and after.

    d limit(A) = limit(A') - limit(A)

Rows that the order does not tell apart are taken by their hash, so the same rows are chosen from
the same contents every time.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.plan import nodes
from penstock.plan.compiler import Compiler
from penstock.plan.rules.rederive import SIGN, rederived


def limit(node: nodes.Limit, c: Compiler) -> DataFrame | None:
    if (child := c.delta(node.child)) is None:
        return None
    rows = rederived(node.child, child, (), c)
    bound = c.catalyst.bind(rows, node.child.output, ("_s", "_r"))
    ranked = c.catalyst.ranked(bound, [e.ref for e in node.order], side="_s", tie="_r")
    named = ranked.toDF(*(f"c{i}" for i in range(len(node.output))), "_s", "_r", "_n")
    chosen = named.where(f"_n > {node.offset}")
    if node.limit is not None:
        chosen = chosen.where(f"_n <= {node.offset + node.limit}")
    return chosen.selectExpr(*(f"c{i}" for i in range(len(node.output))), SIGN)
