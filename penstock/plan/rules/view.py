"""A view's own trace, and the stages that read a relation back.

The batch that a transaction adds to a relation's trace is the relation's change: other views,
outputs and subscribers read it from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from penstock.plan.compiler import KEY, ROW, Compiler, arrow_types, row_hash
from penstock.plan.rules.table import NO_OUTPUT, emit_change, tell_rows
from penstock.trace.batch import Batch, scan
from penstock.trace.rows import Layout, Span, take
from penstock.trace.task import Stage, Task, gather, sliced


def view_change(
    frame: DataFrame, schema: Sequence[StructField], trace: str, c: Compiler, *, emit: bool
) -> DataFrame:
    """Consolidate a view's change and add it to the view's trace."""
    keyed = _by_row(frame, schema)
    stage = SinkStage(trace, row_layout(schema), c.bits, emit)
    return c.stage(c.exchange(keyed), stage, positional(schema, weight=True) if emit else NO_OUTPUT)


def view_difference(frame: DataFrame, schema: Sequence[StructField], trace: str, c: Compiler) -> DataFrame:
    """The change of a view that was computed anew: its rows now less its rows before."""
    whole = frame.toDF(*(f"c{i}" for i in range(len(schema)))).selectExpr("*", "1L AS _w")
    before = c.leaf(
        ScanStage(trace, row_layout(schema), Moment.BEFORE, sign=-1, tasks=c.partitions),
        positional(schema, weight=True),
    )
    return view_change(c.union([whole, before]), schema, trace, c, emit=False)


def _by_row(frame: DataFrame, schema: Sequence[StructField]) -> DataFrame:
    names = [f"c{i}" for i in range(len(schema))]
    return frame.selectExpr(
        f"{row_hash(names, frame.schema, KEY)} AS _k",
        f"{row_hash(names, frame.schema, ROW)} AS _r",
        *names,
        "_w",
    )


def positional(schema: Sequence[StructField], *, weight: bool) -> StructType:
    """The columns under positional names, with or without the weight."""
    named = [StructField(f"c{i}", f.dataType) for i, f in enumerate(schema)]
    return StructType([*named, StructField("_w", LongType())] if weight else named)


def row_layout(schema: Sequence[StructField]) -> Layout:
    return Layout(arrow_types(positional(schema, weight=False)))


@dataclass(frozen=True)
class SinkStage(Stage):
    trace: str
    layout: Layout
    bits: int
    emit: bool

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        change = gather(self.layout, batches)
        task.append(self.trace, change, self.bits)
        tell_rows(task, self.trace, change)
        if self.emit:
            yield from emit_change(change)


def _share(batches: Iterator[pa.RecordBatch], tasks: int) -> tuple[int, int | None]:
    """The range of keys that this task reads; a leaf's input is its own number."""
    number = next(batches).column(0)[0].as_py()
    width = -(-(1 << 64) // tasks)
    low = -(1 << 63) + number * width
    return low, low + width if number + 1 < tasks else None


def _span(low: int, high: int | None) -> Span:
    return Span(low, (1 << 63) - 1 if high is None else high - 1)


@dataclass(frozen=True)
class ChangeStage(Stage):
    """The change of a relation that an earlier job of the same transaction wrote."""

    trace: str
    layout: Layout
    tasks: int

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        low, high = _share(batches, self.tasks)
        for batch in task.new(self.trace, self.layout, _span(low, high)):
            for rows in batch.between(low, high):
                yield from emit_change(rows)


class Moment(Enum):
    """When a relation is looked at: before this transaction, with what earlier jobs of it wrote, or as the
    source from which views are filled, which have seen nothing of it yet."""

    BEFORE = "before"
    AFTER = "after"
    SOURCE = "source"


@dataclass(frozen=True)
class ScanStage(Stage):
    """All rows of a relation: each as often as it is there, or once with its weight times `sign`."""

    trace: str
    layout: Layout
    moment: Moment
    sign: int | None = None
    tasks: int = 1

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        low, high = _share(batches, self.tasks)
        for rows in scan(self.layout, self._opened(task, _span(low, high)), low, high):
            if self.sign is not None:
                yield from emit_change(rows.with_weights(self.sign * rows.w))
                continue
            index = np.repeat(np.arange(len(rows)), rows.w)
            arrays = list(take(rows.columns, index))
            yield from sliced(pa.schema([(f"x{i}", a.type) for i, a in enumerate(arrays)]), arrays)

    def _opened(self, task: Task, keys: Span) -> list[Batch]:
        if self.moment is Moment.SOURCE:
            return task.source(self.trace, self.layout, keys)
        before = task.old(self.trace, self.layout, keys)
        return before if self.moment is Moment.BEFORE else before + task.new(self.trace, self.layout, keys)
