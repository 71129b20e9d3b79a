"""Window functions: the partitions that changed are computed again, before and after.

d window(A) = window(A'|K) - window(A|K),    K = the PARTITION BY values in dA
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.plan import nodes
from penstock.plan.compiler import Compiler, columns
from penstock.plan.rules.rederive import SIGN, rederived


def window(node: nodes.Window, c: Compiler) -> DataFrame | None:
    if (child := c.delta(node.child)) is None:
        return None
    rows = rederived(node.child, child, node.partition, c)
    bound = c.catalyst.bind(rows, node.child.output, ("_s", "_r"))
    over = c.catalyst.window(bound, node.ref, side="_s", tie="_r")
    frame = c.catalyst.select(over, [a.ref for a in node.output], ("_s",))
    return frame.selectExpr(*columns(frame), SIGN)
