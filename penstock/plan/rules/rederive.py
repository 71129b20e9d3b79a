"""Recompute only what the change touched: the groups whose keys changed.

    d op(A) = op(A' restricted to K) - op(A restricted to K),    K = keys of dA

The stage looks up the old contents of the changed keys and hands Spark both the old and the new
rows, each as often as it is there, told apart by the column `_s` (the side). Spark runs the
operator itself on both. With no key there is one group: everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from penstock.plan.compiler import KEY, ROW, Arrangement, Compiler, arrow_types, fields, row_hash
from penstock.plan.nodes import Expression, Node
from penstock.trace.batch import scan
from penstock.trace.rows import Layout, Rows, concat, distinct, take
from penstock.trace.task import Stage, Task, gather, sliced

SIGN = "CASE WHEN _s THEN 1L ELSE -1L END AS _w"


def rederived(
    child: Node, frame: DataFrame, keys: Sequence[Expression], c: Compiler, *, marked: bool = False
) -> DataFrame:
    """Old and new rows of the changed groups: c0, c1, ..., `_s`, the row hash `_r` and, if `marked`, `_m`.

    With `marked` each side has one row more, for which `_m` is true: so that an aggregate over no
    rows at all still has its row.
    """
    width = len(child.output)
    names = [f"c{i}" for i in range(width)]
    bound = c.catalyst.bind(frame, child.output)
    both = c.catalyst.select(bound, [*(a.ref for a in child.output), *(k.ref for k in keys)])
    by = [f"c{width + i}" for i in range(len(keys))] or names
    keyed = both.selectExpr(
        f"{row_hash(by, both.schema, KEY)} AS _k",
        f"{row_hash(names, both.schema, ROW)} AS _r",
        *names,
        "_w",
    )
    layout = Layout(arrow_types(keyed.select(*names).schema))
    text = ", ".join(k.text for k in keys) or "everything"
    arrangement = c.arrange("group", child, keys, layout, f"{child.label} by {text}")
    stage = RederiveStage(arrangement, bool(keys), c.bits if keys else 0, marked)
    marks = [StructField("_m", BooleanType())] if marked else []
    schema = [*fields(keyed, names), StructField("_s", BooleanType()), StructField("_r", LongType()), *marks]
    return c.stage(c.exchange(keyed, single=not keys), stage, StructType(schema))


@dataclass(frozen=True)
class RederiveStage(Stage):
    trace: Arrangement
    keyed: bool
    bits: int
    marked: bool

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.trace.layout
        change = gather(layout, batches)
        if len(change) == 0 and not (self.marked and task.initial):
            return
        if self.keyed:
            old = task.lookup(self.trace.trace, layout, distinct(change.k))
        else:
            old = concat(layout, list(scan(layout, task.old(self.trace.trace, layout))))
        if self.trace.writes:
            task.append(self.trace.trace, change, self.bits)
        new = concat(layout, [old, change]).consolidated()
        if not (self.marked and task.initial):
            yield from self._emit(old, side=False)
        yield from self._emit(new, side=True)

    def _emit(self, rows: Rows, *, side: bool) -> Iterator[pa.RecordBatch]:
        index = np.repeat(np.arange(len(rows)), rows.w)
        count = len(index)
        arrays = [*take(rows.columns, index), pa.array(np.full(count, side)), pa.array(rows.r[index])]
        if self.marked:
            arrays.append(pa.array(np.zeros(count, np.bool_)))
            marker = [pa.nulls(1, type_) for type_ in rows.layout.columns]
            marker += [pa.array([side]), pa.array([0], pa.int64()), pa.array([True])]
            arrays = [pa.concat_arrays([a, b]) for a, b in zip(arrays, marker, strict=True)]
        schema = pa.schema([(f"x{i}", a.type) for i, a in enumerate(arrays)])
        yield from sliced(schema, arrays)
