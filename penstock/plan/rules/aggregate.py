"""GROUP BY.

Where every function is a count, a sum or an average over an exact type, the state is one row per
group whose weights are its accumulators, and a change is added to them (group-delta):

    acc'(g) = acc(g) + sum of w * x over dA|g
    d agg(A) = result(acc') - result(acc)

Results are Spark's own expressions over its own aggregation buffers, so types, NULLs and rounding
are Spark's. Sums are exact: 64-bit integers are kept in two halves and decimals in 128 bits, so
nothing overflows on the way.

Any other function is computed again for the groups that changed (rederive-groups).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from penstock.plan import nodes
from penstock.plan.catalyst import Function, digits, is_nullable, type_name
from penstock.plan.compiler import KEY, ROW, Arrangement, Compiler, arrow_types, fields, row_hash
from penstock.plan.rules.rederive import SIGN, rederived
from penstock.trace import weights
from penstock.trace.rows import Layout, Rows, distinct, find, take
from penstock.trace.task import Stage, Task, gather, sliced


def aggregate(node: nodes.Aggregate, c: Compiler) -> DataFrame | None:
    child = c.delta(node.child)
    if child is None:
        if node.grouping or not c.initial:
            return None
        child = c.nothing(node.child)  # a global aggregate has its one row from the start
    return group_delta(node, child, c) if node.reason is None else rederive_groups(node, child, c)


def rederive_groups(node: nodes.Aggregate, child: DataFrame, c: Compiler) -> DataFrame:
    everything = not node.grouping
    rows = rederived(node.child, child, node.grouping, c, marked=everything)
    expressions = [e.ref for e in node.expressions]
    kept = ("_s", "_m") if everything else ("_s",)
    if everything:
        rows = rows.withColumn("_m", F.expr("NOT _m"))
    bound = c.catalyst.bind(rows, node.child.output, kept)
    if everything:
        expressions = c.catalyst.guard(expressions, bound.kept["_m"])
    grouped = c.catalyst.aggregate(bound, [e.ref for e in node.grouping], expressions, ("_s",))
    frame = c.catalyst.select(grouped, [a.ref for a in node.output], ("_s",))
    return frame.selectExpr(*(f"c{i}" for i in range(len(node.output))), SIGN)


@dataclass(frozen=True)
class _Sums:
    """How one aggregate function is kept: SQL text of what a row adds to each accumulator, and of
    each column of Spark's buffer in terms of the accumulators.

    The text refers to a row's argument as {x}, to its weight as {w} (0 where a FILTER rejects the
    row), and to accumulators as {0}, {1}, ...
    """

    adds: tuple[str, ...]
    buffer: dict[str, str]
    scale: int | None = None  # accumulators 1 and 2 are halves of an unscaled decimal

    @classmethod
    def of(cls, function: Function) -> _Sums:
        if function.name == "count":
            return cls(("{w}",), {"count": "{0}"})
        type_ = type_name(function.arguments[0])
        adds: tuple[str, ...]
        there = "CASE WHEN {x} IS NULL THEN 0L ELSE {w} END"
        value = "{1}"
        scale = None
        if type_ == "bigint" or (type_.startswith("decimal") and digits(type_)[0] <= 18):
            low = "coalesce(({x} & 4294967295L) * {w}, 0L)"
            high = "coalesce(shiftright({x}, 32) * {w}, 0L)"
            adds = (there, high, low)
            value = "(CAST({1} AS DECIMAL(20)) * 4294967296 + CAST({2} AS DECIMAL(20)))"
            if type_.startswith("decimal"):
                scale = digits(type_)[1]
                value = "({1} * 4294967296 + {2})"
        elif type_.startswith("decimal"):
            wide = f"DECIMAL(38, {digits(type_)[1]})"
            signed = "CASE {w} WHEN 1 THEN {x} WHEN -1 THEN -{x} ELSE {x} * CAST({w} AS INT) END"
            adds = (there, f"coalesce(CAST({signed} AS {wide}), CAST(0 AS {wide}))")
        else:
            adds = (there, "coalesce(CAST({x} AS BIGINT) * {w}, 0L)")
        return cls(adds, {"sum": f"nullif_empty({value})", "isEmpty": "{0} = 0", "count": "{0}"}, scale)


def group_delta(node: nodes.Aggregate, child: DataFrame, c: Compiler) -> DataFrame:
    functions = c.catalyst.functions(node.expressions)
    keys = [f"g{i}" for i in range(len(node.grouping))]
    contributions, sums = _contributions(node, child, functions, keys, c)
    accumulators = [name for name in contributions.columns if name.startswith("a")]

    grouped = contributions.groupBy(*keys).agg(*(F.expr(f"sum({a})").alias(a) for a in accumulators))
    if not keys:  # no rows, no sums
        grouped = grouped.where("a0 IS NOT NULL")
    types = {f.name: f.dataType for f in contributions.schema.fields}
    keyed = grouped.selectExpr(
        f"{row_hash(keys, contributions.schema, KEY)} AS _k",
        f"{row_hash(keys, contributions.schema, ROW)} AS _r",
        *keys,
        *(f"CAST({a} AS {types[a].simpleString()}) AS {a}" for a in accumulators),
    )
    layout = Layout(arrow_types(keyed.select(*keys).schema), arrow_types(keyed.select(*accumulators).schema))
    arrangement = c.arrange("sum", node, (), layout, node.label)
    stage = AccumulateStage(arrangement, c.bits if keys else 0, everything=not keys)
    schema = StructType([*fields(keyed, [*keys, *accumulators]), StructField("_w", LongType())])
    changed = c.stage(c.exchange(keyed, single=not keys), stage, schema)
    return _results(node, changed, functions, sums, keys, c)


def _contributions(
    node: nodes.Aggregate, child: DataFrame, functions: list[Function], keys: list[str], c: Compiler
) -> tuple[DataFrame, list[_Sums]]:
    """What each changed row adds: g0, g1, ... and a0 (how many rows), a1, ..."""
    sums = [_Sums.of(f) for f in functions]
    wanted = [e.ref for e in node.grouping]
    texts = [f"c{i} AS {key}" for i, key in enumerate(keys)]
    adds = ["_w AS a0"]
    for function, kept in zip(functions, sums, strict=True):
        weight = "_w"
        if function.filter is not None:
            weight = f"CASE WHEN c{len(wanted)} THEN _w ELSE 0L END"
            wanted.append(function.filter)
        if function.name == "count":
            nullable = [a for a in function.arguments if is_nullable(a)]
            nulls = [f"c{len(wanted) + i} IS NULL" for i in range(len(nullable))]
            wanted += nullable
            argument = ""
            if nulls:
                weight = f"CASE WHEN {' OR '.join(nulls)} THEN 0L ELSE {weight} END"
        else:
            argument = f"c{len(wanted)}"
            x = function.arguments[0]
            wanted.append(x if kept.scale is None else c.catalyst.unscaled(x))
        adds += [
            f"{text.format(x=argument, w=f'({weight})')} AS a{len(adds) + i}"
            for i, text in enumerate(kept.adds)
        ]
    bound = c.catalyst.bind(child, node.child.output)
    return c.catalyst.select(bound, wanted).selectExpr(*texts, *adds), sums


def _results(
    node: nodes.Aggregate,
    changed: DataFrame,
    functions: list[Function],
    sums: list[_Sums],
    keys: list[str],
    c: Compiler,
) -> DataFrame:
    """From accumulators to Spark's buffers to Spark's results."""
    texts = [f"{key} AS c{i}" for i, key in enumerate(keys)]
    scaled: dict[str, int] = {}
    at = 1
    for function, kept in zip(functions, sums, strict=True):
        names = [f"a{at + i}" for i in range(len(kept.adds))]
        at += len(names)
        if kept.scale is not None:
            scaled |= dict.fromkeys(names[1:], kept.scale)
        for attribute in function.buffer:
            type_ = type_name(attribute.ref)
            text = kept.buffer[attribute.name]
            if text.startswith("nullif_empty("):
                value = text.removeprefix("nullif_empty").format(*names)
                text = f"CASE WHEN {names[0]} = 0 THEN NULL ELSE CAST({value} AS {type_}) END"
            else:
                text = text.format(*names)
            texts.append(f"{text} AS c{len(texts)}")
    frame = c.catalyst.scaled(changed, scaled) if scaled else changed
    return c.catalyst.finish(frame.selectExpr(*texts, "_w"), [e.ref for e in node.grouping], node)


@dataclass(frozen=True)
class AccumulateStage(Stage):
    """Add the change to the accumulators of its groups; emit each as it was (-1) and as it is (+1).

    The first accumulator counts the rows of the group; a group without rows is not there, unless
    it is everything.
    """

    trace: Arrangement
    bits: int
    everything: bool

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.trace.layout
        change = gather(layout, batches)
        if self.everything and task.initial:
            yield from self._emit(change if len(change) else self._zero(), 1)
            task.append(self.trace.trace, change, self.bits)
            return
        if len(change) == 0:
            return
        old = task.lookup(self.trace.trace, layout, distinct(change.k))
        if self.trace.writes:
            task.append(self.trace.trace, change, self.bits)
        at = find(old, change.k, change.r)
        before = tuple(
            _or_zero(weight, at, type_) for weight, type_ in zip(old.weights, layout.weights, strict=True)
        )
        after = tuple(weights.add(a, b) for a, b in zip(before, change.weights, strict=True))
        yield from self._emit(change.with_weights(*before), -1)
        yield from self._emit(change.with_weights(*after), 1)

    def _emit(self, rows: Rows, sign: int) -> Iterator[pa.RecordBatch]:
        if not self.everything:
            index = np.flatnonzero(rows.w > 0)
            if len(index) != len(rows):
                rows = Rows(
                    rows.layout,
                    rows.k[index],
                    rows.r[index],
                    take(rows.columns, index),
                    tuple(w[index] for w in rows.weights),
                )
        if len(rows) == 0:
            return
        arrays = [*rows.columns]
        arrays += [weights.encode(w, t) for w, t in zip(rows.weights, rows.layout.weights, strict=True)]
        arrays.append(pa.array(np.full(len(rows), sign, np.int64)))
        yield from sliced(pa.schema([(f"x{i}", a.type) for i, a in enumerate(arrays)]), arrays)

    def _zero(self) -> Rows:
        one = np.zeros(1, np.int64)
        return Rows(
            self.trace.layout, one, one, (), tuple(weights.zeros(1, t) for t in self.trace.layout.weights)
        )


def _or_zero(weight: weights.Weight, at: np.ndarray, type_: pa.DataType) -> weights.Weight:
    result = weights.zeros(len(at), type_)
    found = np.flatnonzero(at >= 0)
    result[found] = weight[at[found]]
    return result
