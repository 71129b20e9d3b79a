"""Put Spark's own expressions and operators on DataFrames."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from penstock.plan import nodes
from penstock.plan.catalyst.functions import Function, by_rows, functions_of, windows
from penstock.plan.catalyst.jvm import jvm_of
from penstock.plan.catalyst.reader import frame_of
from penstock.plan.catalyst.refs import Ref, attribute, iterate, kind, seq, transform, unaliased
from penstock.plan.nodes import Attribute, Expression


@dataclass(frozen=True)
class Bound:
    """A plan whose columns carry the ids that expressions refer to, beside columns kept by name."""

    plan: Ref
    kept: Mapping[str, Ref]


class Builder:
    """Builds plans in one SparkSession."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm = jvm_of(spark)
        self._x = self._jvm.expressions
        self._logical = self._jvm.logical

    def bind(self, frame: DataFrame, columns: Sequence[Attribute], keep: Sequence[str] = ("_w",)) -> Bound:
        """Give the columns c0, c1, ... of a frame the ids of `columns`; keep others by name."""
        plan = frame._jdf.queryExecution().analyzed()
        by_name = {a.name(): a for a in iterate(plan.output())}
        aliases = [
            self._alias(by_name[f"c{i}"], column.ref.name(), column.ref.exprId())
            for i, column in enumerate(columns)
        ]
        kept = {name: by_name[name] for name in keep}
        return Bound(self._logical.Project(seq([*aliases, *kept.values()]), plan), kept)

    def select(self, bound: Bound, expressions: Sequence[Ref], keep: Sequence[str] = ("_w",)) -> DataFrame:
        """Evaluate expressions over bound columns into a frame c0, c1, ... and the kept columns."""
        named = [self._alias(unaliased(e), f"c{i}") for i, e in enumerate(expressions)]
        columns = seq([*named, *(bound.kept[k] for k in keep)])
        return frame_of(self.spark, self._logical.Project(columns, bound.plan))

    def filter(self, bound: Bound, condition: Ref) -> Bound:
        return Bound(self._logical.Filter(condition, bound.plan), bound.kept)

    def generate(self, bound: Bound, generate: Ref) -> Bound:
        """Put a Generate node on another child, which has the same columns and then the kept ones."""
        return Bound(generate.withNewChildren(seq([bound.plan])), bound.kept)

    def expand(self, bound: Bound, node: nodes.Expand) -> Bound:
        kept = list(bound.kept.values())
        projections = [seq([*(e.ref for e in p), *kept]) for p in node.projections]
        output = seq([*(a.ref for a in node.output), *kept])
        return Bound(self._logical.Expand(seq(projections), output, bound.plan), bound.kept)

    def aggregate(
        self, bound: Bound, grouping: Sequence[Ref], expressions: Sequence[Ref], keep: Sequence[str]
    ) -> Bound:
        """GROUP BY the given keys and the kept columns."""
        kept = [bound.kept[name] for name in keep]
        plan = self._logical.Aggregate(
            seq([*grouping, *kept]), seq([*expressions, *kept]), bound.plan, self._jvm.none
        )
        return Bound(plan, {name: bound.kept[name] for name in keep})

    def guard(self, expressions: Sequence[Ref], flag: Ref) -> list[Ref]:
        """The aggregate expressions with `FILTER (WHERE flag)` added to each function."""

        def guarded(e: Ref) -> Ref | None:
            if kind(e) != "AggregateExpression":
                return None
            condition = self._x.And(flag, e.filter().get()) if e.filter().isDefined() else flag
            return self._jvm.aggregate.AggregateExpression(
                e.aggregateFunction(),
                e.mode(),
                e.isDistinct(),
                self._jvm.option.apply(condition),
                e.resultId(),
            )

        return [transform(e, guarded) for e in expressions]

    def window(self, bound: Bound, window: Ref, side: str, tie: str) -> Bound:
        """Put a Window node on another child, each side its own partitions.

        Functions that number or frame rows get a total order (`tie` is added to it), so that
        running them again over the same rows gives the same answer.
        """
        partition = seq([*iterate(window.partitionSpec()), bound.kept[side]])
        order = list(iterate(window.orderSpec()))
        total = [*order, self._ascending(bound.kept[tie])] if order else []
        aliases = list(iterate(window.windowExpressions()))
        plan = bound.plan
        for total_order in (True, False):
            chosen = [a for a in aliases if all(by_rows(w) for w in windows(a)) is total_order]
            if chosen:
                by = seq(total if total_order else order)
                over = seq([self._over(alias, partition, by) for alias in chosen])
                plan = self._logical.Window(over, partition, by, plan, window.hint())
        return Bound(plan, bound.kept)

    def _over(self, alias: Ref, partition: Ref, order: Ref) -> Ref:
        """An expression with its window function over other partitions and in another order."""

        def moved(e: Ref) -> Ref | None:
            if kind(e) != "WindowExpression":
                return None
            frame = e.windowSpec().frameSpecification()
            spec = self._x.WindowSpecDefinition(partition, order, frame)
            return self._x.WindowExpression(e.windowFunction(), spec)

        return self._alias(transform(alias.child(), moved), alias.name(), alias.exprId())

    def ranked(self, bound: Bound, order: Sequence[Ref], side: str, tie: str) -> DataFrame:
        """The bound plan with `_n`: the row's number within its side, by `order` and then `tie`."""
        total = seq([*order, self._ascending(bound.kept[tie])])
        partition = seq([bound.kept[side]])
        frame = self._x.SpecifiedWindowFrame(
            self._object("RowFrame"), self._object("UnboundedPreceding"), self._object("CurrentRow")
        )
        spec = self._x.WindowSpecDefinition(partition, total, frame)
        number = self._alias(self._x.WindowExpression(self._x.RowNumber(), spec), "_n")
        plan = self._logical.Window(seq([number]), partition, total, bound.plan, self._jvm.none)
        return frame_of(self.spark, plan)

    def unscaled(self, expression: Ref) -> Ref:
        """A decimal of at most 18 digits as the integer it is stored as."""
        return self._x.UnscaledValue(expression)

    def scaled(self, frame: DataFrame, columns: Mapping[str, int]) -> DataFrame:
        """Integers back to decimals: each named column with its scale, as DECIMAL(20, scale)."""
        plan = frame._jdf.queryExecution().analyzed()
        named = [
            self._alias(self._x.MakeDecimal(a, 20, columns[a.name()], True), a.name())
            if a.name() in columns
            else a
            for a in iterate(plan.output())
        ]
        return frame_of(self.spark, self._logical.Project(seq(named), plan))

    def functions(self, expressions: Sequence[Expression]) -> list[Function]:
        """The aggregate functions in the given expressions, each once."""
        return list(functions_of([e.ref for e in expressions]))

    def finish(self, frame: DataFrame, grouping: Sequence[Ref], node: nodes.Aggregate) -> DataFrame:
        """Spark's own results from its aggregation buffers.

        `frame` has the grouping keys, then each function's buffer, as c0, c1, ..., and `_w`.
        """
        functions = self.functions(node.expressions)
        keys = [self._named(g) for g in grouping]
        columns = [*keys, *(attribute for f in functions for attribute in f.buffer)]
        bound = self.bind(frame, columns)
        results = {f.ref.resultId().id(): f.result for f in functions}
        by_text = {g.toString(): key.ref for g, key in zip(grouping, keys, strict=True)}

        def finished(e: Ref) -> Ref | None:
            if kind(e) == "AggregateExpression":
                return results[e.resultId().id()]
            return by_text.get(e.toString())

        return self.select(bound, [transform(unaliased(e.ref), finished) for e in node.expressions])

    def _named(self, expression: Ref) -> Attribute:
        if kind(expression) == "AttributeReference":
            return attribute(expression)
        alias = self._alias(expression, "key")
        return attribute(alias.toAttribute())

    def has_exchange(self, frame: DataFrame) -> bool:
        """Whether the physical plan keeps a result between runs: an exchange, a subquery, a cache."""
        plan = frame._jdf.queryExecution().executedPlan()
        return bool(re.search(r"Exchange|Subquery|InMemoryTableScan|ReusedExchange", plan.toString()))

    def job(self, frame: DataFrame) -> Ref:
        """A frame's physical plan as something to run, once or many times, for its effects."""
        return frame._jdf.queryExecution().executedPlan().execute()

    def run(self, job: Ref) -> None:
        """Collecting would add a step to the plan in every run, which takes longer than counting nothing."""
        job.count()

    def replanned(self, frame: DataFrame) -> DataFrame:
        """The same logical plan with a new physical plan, which holds no result of an earlier run."""
        return frame_of(self.spark, frame._jdf.queryExecution().analyzed())

    def values(self, node: nodes.Values) -> DataFrame:
        """Constant rows as a frame c0, c1, ... with weight 1."""
        frame = frame_of(self.spark, node.ref).toDF(*(f"c{i}" for i in range(len(node.output))))
        return frame.selectExpr("*", "1L AS _w")

    def _alias(self, expression: Ref, name: str, id_: Ref | None = None) -> Ref:
        if id_ is None:
            id_ = self._jvm.named.newExprId()
        return self._x.Alias(expression, name, id_, seq([]), self._jvm.none, seq([]))

    def _ascending(self, attribute: Ref) -> Ref:
        direction = self._object("Ascending")
        return self._x.SortOrder(attribute, direction, direction.defaultNullOrdering(), seq([]))

    def _object(self, name: str) -> Ref:
        """A Scala object of the expressions package."""
        return getattr(getattr(self._x, f"{name}$"), "MODULE$")
