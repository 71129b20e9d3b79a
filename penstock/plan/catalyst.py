"""The only module that touches Spark's internals through py4j.

It reads Catalyst's optimized plan into the typed plan of `nodes`, and it puts Spark's own
expressions and operators on top of DataFrames whose columns are named by position: c0, c1, ...
and `_w`, the weight. Everything else works with DataFrames only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from penstock.errors import PlanError
from penstock.plan import nodes
from penstock.plan.nodes import Attribute, Expression, JoinType, Node

Ref = Any  # an object of the JVM

# Rules of Spark's optimizer that would put physical concerns, or the moment of planning, into the plan.
SETTINGS: Mapping[str, str] = {
    "spark.sql.optimizer.excludedRules": ",".join(
        [
            "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
            "org.apache.spark.sql.catalyst.optimizer.MergeSubplans",
            "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery",
        ]
    ),
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    # Our plans alias columns at every step, and constraints grow exponentially with aliases.
    "spark.sql.constraintPropagation.enabled": "false",
    # Truncated text would make two different expressions look the same.
    "spark.sql.debug.maxToStringFields": "1000000",
}

_SUBQUERIES = ("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery")
_ID = re.compile(r"#(\d+)L?")

_JOIN_TYPES = {
    "Inner": JoinType.INNER,
    "Cross": JoinType.INNER,
    "LeftOuter": JoinType.LEFT,
    "RightOuter": JoinType.LEFT,
    "FullOuter": JoinType.FULL,
    "LeftSemi": JoinType.SEMI,
    "LeftAnti": JoinType.ANTI,
}


@dataclass(frozen=True)
class Bound:
    """A plan whose columns carry the ids that expressions refer to, beside columns kept by name."""

    plan: Ref
    kept: Mapping[str, Ref]


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
        return [_attribute(a) for a in _iterate(self.ref.aggregateFunction().aggBufferAttributes())]

    @property
    def result(self) -> Ref:
        """Spark's own expression for the result, over the columns of `buffer`."""
        return self.ref.aggregateFunction().evaluateExpression()


class Catalyst:
    """Reads and builds plans in one SparkSession."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._x = jvm.org.apache.spark.sql.catalyst.expressions
        self._logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        self._leaves: dict[int, str] = {}

    # -- relations ------------------------------------------------------------------------------

    def declare(self, name: str, schema: StructType) -> None:
        """Make `name` a relation that queries can read: opaque, so that nothing above it is folded away."""
        rdd = self.spark.sparkContext._jsc.emptyRDD().rdd()
        type_ = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        frame = self.spark._jsparkSession.internalCreateDataFrame(rdd, type_, False)
        self._leaves[rdd.id()] = name
        frame.createOrReplaceTempView(f"`{name}`")

    def schema(self, attributes: Sequence[Attribute]) -> list[StructField]:
        """Names, types and nullability of columns."""
        return [
            StructField(a.name, _parse_datatype_json_string(a.ref.dataType().json()), a.ref.nullable())
            for a in attributes
        ]

    # -- reading --------------------------------------------------------------------------------

    def read(self, query: DataFrame) -> Node:
        """The typed plan of a query; PlanError names the first operator that has no incremental rule."""
        return self._node(query._jdf.queryExecution().optimizedPlan())

    def non_deterministic(self, query: DataFrame) -> str | None:
        """The name of a function in the query whose value changes from call to call."""
        return next(self._non_deterministic(query._jdf.queryExecution().analyzed()), None)

    def _non_deterministic(self, plan: Ref) -> Iterator[str]:
        for expression in _iterate(plan.expressions()):
            if not expression.deterministic():
                yield from self._culprits(expression)
        for child in [
            *_iterate(plan.children()),
            *_iterate(plan.subqueries()),
            *_iterate(plan.innerChildren()),
        ]:
            if _is_plan(child):
                yield from self._non_deterministic(child)

    def _culprits(self, expression: Ref) -> Iterator[str]:
        children = [c for c in _iterate(expression.children()) if not c.deterministic()]
        for child in children:
            yield from self._culprits(child)
        aggregate = (
            expression.getClass().getName().startswith("org.apache.spark.sql.catalyst.expressions.aggregate.")
        )
        subquery = expression.getClass().getSimpleName() in _SUBQUERIES
        if not children and not aggregate and not subquery:
            yield expression.prettyName()

    def _node(self, plan: Ref) -> Node:
        kind = plan.nodeName()
        output = tuple(_attribute(a) for a in _iterate(plan.output()))
        match kind:
            case "LogicalRDD" if plan.rdd().id() in self._leaves:
                return nodes.Scan(output, self._leaves[plan.rdd().id()])
            case "LocalRelation" | "OneRowRelation" | "Range":
                return nodes.Values(output, plan)
            case "Project":
                child, exprs = self._lift(plan.child(), list(_iterate(plan.projectList())))
                return nodes.Project(output, child, _expressions(exprs, child))
            case "Filter":
                child, [condition] = self._lift(plan.child(), [plan.condition()])
                filtered = nodes.Filter(child.output, child, _expression(condition, child))
                return _narrowed(filtered, output)
            case "Join":
                return self._join(plan, output)
            case "Aggregate":
                return self._aggregate(plan, output)
            case "Window":
                child = self._node(plan.child())
                over = [w for e in _iterate(plan.windowExpressions()) for w in _windows(e)]
                names = tuple(_name(w.windowFunction()) for w in over)
                partition = _expressions(_iterate(plan.partitionSpec()), child)
                text = "; ".join(_expression(e, child).text for e in _iterate(plan.windowExpressions()))
                return nodes.Window(output, child, plan, partition, names, text)
            case "Union":
                return nodes.Union(output, tuple(self._node(c) for c in _iterate(plan.children())))
            case "Generate":
                child = self._node(plan.child())
                dropped = plan.unrequiredChildIndex().toString()
                text = f"{_expression(plan.generator(), child).text} outer={plan.outer()} {dropped}"
                return nodes.Generate(output, child, plan, _name(plan.generator()), text)
            case "Expand":
                child = self._node(plan.child())
                projections = tuple(_expressions(_iterate(p), child) for p in _iterate(plan.projections()))
                return nodes.Expand(output, child, projections)
            case "GlobalLimit" | "Offset":
                return self._limit(plan)
            case "LocalLimit" | "Sort" | "Repartition" | "RepartitionByExpression" | "RebalancePartitions":
                # A view has no order, and how rows are spread is not the query's to say. A LocalLimit
                # without its GlobalLimit is only a hint that a subset would do.
                return self._node(plan.child())
        raise PlanError(f"{kind} has no incremental rule")

    def _limit(self, plan: Ref) -> Node:
        limit: int | None = None
        offset = 0
        while plan.nodeName() in ("GlobalLimit", "LocalLimit", "Offset"):
            if plan.nodeName() == "Offset":
                offset += _constant(plan.offsetExpr())
            elif plan.nodeName() == "GlobalLimit":
                if offset:
                    break  # an offset above a limit: the limit applies first
                bound = _constant(plan.limitExpr())
                limit = bound if limit is None else min(limit, bound)
            plan = plan.child()
        projects = []
        while plan.nodeName() == "Project":  # drops columns that only the order needs
            projects.append(plan)
            plan = plan.child()
        order: list[Ref] = []
        if plan.nodeName() == "Sort":
            order = list(_iterate(plan.order()))
            plan = plan.child()
        child = self._node(plan)
        node: Node = nodes.Limit(child.output, child, _expressions(order, child), limit, offset)
        for project in reversed(projects):
            output = tuple(_attribute(a) for a in _iterate(project.output()))
            node, exprs = self._lift(node, list(_iterate(project.projectList())))
            node = nodes.Project(output, node, _expressions(exprs, node))
        return node

    def _join(self, plan: Ref, output: tuple[Attribute, ...]) -> Node:
        kind = plan.joinType().toString()
        condition = plan.condition().get() if plan.condition().isDefined() else None
        left_plan, right_plan = plan.left(), plan.right()
        left_keys: list[Ref] = []
        right_keys: list[Ref] = []
        equi = self._jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(plan)
        if equi.isDefined():
            left_keys, right_keys = list(_iterate(equi.get()._2())), list(_iterate(equi.get()._3()))
        if kind == "RightOuter":
            left_plan, right_plan, left_keys, right_keys = right_plan, left_plan, right_keys, left_keys
        left, right = self._node(left_plan), self._node(right_plan)
        if condition is not None:
            left, [condition] = self._lift(left, [condition])
        if kind.startswith("ExistenceJoin"):
            type_ = JoinType.EXISTENCE
            produced = (*left.output, _attribute(plan.joinType().exists()))
        elif kind in _JOIN_TYPES:
            type_ = _JOIN_TYPES[kind]
            both = type_ in (JoinType.INNER, JoinType.LEFT, JoinType.FULL)
            produced = (*left.output, *right.output) if both else left.output
        else:
            raise PlanError(f"{kind} join has no incremental rule")
        join = nodes.Join(
            produced,
            left,
            right,
            type_,
            _expressions(left_keys, left),
            _expressions(right_keys, right),
            None if condition is None else _expression(condition, left, right),
        )
        return _narrowed(join, output)

    def _aggregate(self, plan: Ref, output: tuple[Attribute, ...]) -> Node:
        grouping = list(_iterate(plan.groupingExpressions()))
        if any(_is_session_window(g) for g in grouping):
            # Spark merges overlapping sessions in the physical plan only.
            raise PlanError("session_window has no incremental rule")
        expressions = list(_iterate(plan.aggregateExpressions()))
        child, lifted = self._lift(plan.child(), grouping + expressions)
        grouping, expressions = lifted[: len(grouping)], lifted[len(grouping) :]
        functions = list(_functions(expressions))
        return nodes.Aggregate(
            output,
            child,
            _expressions(grouping, child),
            _expressions(expressions, child),
            tuple(f.name for f in functions),
            next((reason for f in functions if (reason := _not_additive(f))), None),
        )

    def _lift(self, child: Ref | Node, expressions: list[Ref]) -> tuple[Node, list[Ref]]:
        """Turn uncorrelated scalar subqueries into joins with their one row.

        f(A, (SELECT s ...)) = f(A x S), where S has exactly one row.
        """
        node = child if isinstance(child, Node) else self._node(child)
        rewritten = []
        for expression in expressions:
            while (subquery := _find_subquery(expression)) is not None:
                single = self._single_row(subquery.plan())
                joined = (*node.output, *single.output)
                node = nodes.Join(joined, node, single, JoinType.INNER, (), (), None)
                expression = _replace(expression, subquery, single.output[0].ref)
            rewritten.append(expression)
        return node, rewritten

    def _single_row(self, plan: Ref) -> Node:
        """The plan of a scalar subquery, made to have exactly one row as its value does."""
        bottom = plan
        while bottom.nodeName() == "Project":
            bottom = bottom.child()
        if bottom.nodeName() == "Aggregate" and bottom.groupingExpressions().isEmpty():
            return self._node(plan)
        frame = self._frame(plan).toDF("value")
        single = frame.agg(F.expr("count(1) AS n"), F.expr("any_value(value) AS value"))
        checked = single.selectExpr(
            "CASE WHEN n > 1 THEN raise_error('a scalar subquery returned more than one row')"
            " ELSE value END AS value"
        )
        return self._node(checked._jdf.queryExecution().optimizedPlan())

    # -- building -------------------------------------------------------------------------------

    def bind(self, frame: DataFrame, columns: Sequence[Attribute], keep: Sequence[str] = ("_w",)) -> Bound:
        """Give the columns c0, c1, ... of a frame the ids of `columns`; keep others by name."""
        plan = frame._jdf.queryExecution().analyzed()
        by_name = {a.name(): a for a in _iterate(plan.output())}
        aliases = [
            self._alias(by_name[f"c{i}"], column.ref.name(), column.ref.exprId())
            for i, column in enumerate(columns)
        ]
        kept = {name: by_name[name] for name in keep}
        return Bound(self._logical.Project(_seq([*aliases, *kept.values()]), plan), kept)

    def select(self, bound: Bound, expressions: Sequence[Ref], keep: Sequence[str] = ("_w",)) -> DataFrame:
        """Evaluate expressions over bound columns into a frame c0, c1, ... and the kept columns."""
        named = [self._alias(_unaliased(e), f"c{i}") for i, e in enumerate(expressions)]
        return self._frame(self._logical.Project(_seq([*named, *(bound.kept[k] for k in keep)]), bound.plan))

    def filter(self, bound: Bound, condition: Ref) -> Bound:
        return Bound(self._logical.Filter(condition, bound.plan), bound.kept)

    def generate(self, bound: Bound, generate: Ref) -> Bound:
        """Put a Generate node on another child, which has the same columns and then the kept ones."""
        return Bound(generate.withNewChildren(_seq([bound.plan])), bound.kept)

    def expand(self, bound: Bound, node: nodes.Expand) -> Bound:
        kept = list(bound.kept.values())
        projections = [_seq([*(e.ref for e in p), *kept]) for p in node.projections]
        output = _seq([*(a.ref for a in node.output), *kept])
        return Bound(self._logical.Expand(_seq(projections), output, bound.plan), bound.kept)

    def aggregate(
        self, bound: Bound, grouping: Sequence[Ref], expressions: Sequence[Ref], keep: Sequence[str]
    ) -> Bound:
        """GROUP BY the given keys and the kept columns."""
        kept = [bound.kept[name] for name in keep]
        plan = self._logical.Aggregate(
            _seq([*grouping, *kept]), _seq([*expressions, *kept]), bound.plan, self._none()
        )
        return Bound(plan, {name: bound.kept[name] for name in keep})

    def guard(self, expressions: Sequence[Ref], flag: Ref) -> list[Ref]:
        """The aggregate expressions with `FILTER (WHERE flag)` added to each function."""

        def guarded(e: Ref) -> Ref | None:
            if e.getClass().getSimpleName() != "AggregateExpression":
                return None
            condition = self._x.And(flag, e.filter().get()) if e.filter().isDefined() else flag
            return self._jvm.org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression(
                e.aggregateFunction(), e.mode(), e.isDistinct(), self._some(condition), e.resultId()
            )

        return [_transform(e, guarded) for e in expressions]

    def window(self, bound: Bound, window: Ref, side: str, tie: str) -> Bound:
        """Put a Window node on another child, each side its own partitions.

        Functions that number or frame rows get a total order (`tie` is added to it), so that
        running them again over the same rows gives the same answer.
        """
        partition = _seq([*_iterate(window.partitionSpec()), bound.kept[side]])
        order = list(_iterate(window.orderSpec()))
        total = [*order, self._ascending(bound.kept[tie])] if order else []
        aliases = list(_iterate(window.windowExpressions()))
        plan = bound.plan
        for total_order in (True, False):
            chosen = [a for a in aliases if all(_by_rows(w) for w in _windows(a)) is total_order]
            if chosen:
                by = _seq(total if total_order else order)
                over = _seq([self._over(alias, partition, by) for alias in chosen])
                plan = self._logical.Window(over, partition, by, plan, window.hint())
        return Bound(plan, bound.kept)

    def _over(self, alias: Ref, partition: Ref, order: Ref) -> Ref:
        """An expression with its window function over other partitions and in another order."""

        def moved(e: Ref) -> Ref | None:
            if e.getClass().getSimpleName() != "WindowExpression":
                return None
            frame = e.windowSpec().frameSpecification()
            spec = self._x.WindowSpecDefinition(partition, order, frame)
            return self._x.WindowExpression(e.windowFunction(), spec)

        return self._alias(_transform(alias.child(), moved), alias.name(), alias.exprId())

    def ranked(self, bound: Bound, order: Sequence[Ref], side: str, tie: str) -> DataFrame:
        """The bound plan with `_n`: the row's number within its side, by `order` and then `tie`."""
        total = _seq([*order, self._ascending(bound.kept[tie])])
        partition = _seq([bound.kept[side]])
        frame = self._jvm.org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame(
            self._object("RowFrame"), self._object("UnboundedPreceding"), self._object("CurrentRow")
        )
        spec = self._x.WindowSpecDefinition(partition, total, frame)
        number = self._alias(self._x.WindowExpression(self._x.RowNumber(), spec), "_n")
        plan = self._logical.Window(_seq([number]), partition, total, bound.plan, self._none())
        return self._frame(plan)

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
            for a in _iterate(plan.output())
        ]
        return self._frame(self._logical.Project(_seq(named), plan))

    def functions(self, expressions: Sequence[Expression]) -> list[Function]:
        """The aggregate functions in the given expressions, each once."""
        return list(_functions([e.ref for e in expressions]))

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
            if e.getClass().getSimpleName() == "AggregateExpression":
                return results[e.resultId().id()]
            return by_text.get(e.toString())

        return self.select(bound, [_transform(_unaliased(e.ref), finished) for e in node.expressions])

    def _named(self, expression: Ref) -> Attribute:
        if expression.getClass().getSimpleName() == "AttributeReference":
            return _attribute(expression)
        alias = self._alias(expression, "key")
        return _attribute(alias.toAttribute())

    def has_exchange(self, frame: DataFrame) -> bool:
        """Whether the physical plan keeps a result between runs: an exchange, a subquery, a cache."""
        plan = frame._jdf.queryExecution().executedPlan()
        return bool(re.search(r"Exchange|Subquery|InMemoryTableScan|ReusedExchange", plan.toString()))

    def run(self, frame: DataFrame) -> None:
        """Run a frame's physical plan, the same one each time, for its effects."""
        frame._jdf.queryExecution().executedPlan().executeCollect()

    def replanned(self, frame: DataFrame) -> DataFrame:
        """The same logical plan with a new physical plan, which holds no result of an earlier run."""
        return self._frame(frame._jdf.queryExecution().analyzed())

    # -- plumbing -------------------------------------------------------------------------------

    def _frame(self, plan: Ref) -> DataFrame:
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self.spark._jsparkSession, plan)
        return DataFrame(dataset, self.spark)

    def frame_of(self, node: nodes.Values) -> DataFrame:
        """Constant rows as a frame c0, c1, ... with weight 1."""
        frame = self._frame(node.ref).toDF(*(f"c{i}" for i in range(len(node.output))))
        return frame.selectExpr("*", "1L AS _w")

    def _alias(self, expression: Ref, name: str, id_: Ref | None = None) -> Ref:
        if id_ is None:
            id_ = self._x.NamedExpression.newExprId()
        return self._x.Alias(expression, name, id_, _seq([]), self._none(), _seq([]))

    def _ascending(self, attribute: Ref) -> Ref:
        direction = self._object("Ascending")
        return self._x.SortOrder(attribute, direction, direction.defaultNullOrdering(), _seq([]))

    def _object(self, name: str) -> Ref:
        """A Scala object of the expressions package."""
        return getattr(getattr(self._x, f"{name}$"), "MODULE$")

    def _some(self, value: Ref) -> Ref:
        return self._jvm.scala.Option.apply(value)

    def _none(self) -> Ref:
        return self._jvm.scala.Option.empty()


def _seq(items: Sequence[Ref]) -> Ref:
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._jvm is not None
    return context._jvm.PythonUtils.toSeq(list(items))


def _iterate(seq: Ref) -> Iterator[Ref]:
    iterator = seq.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _is_plan(ref: Ref) -> bool:
    context = SparkContext._active_spark_context
    assert context is not None
    plan = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
    return bool(is_instance_of(context._gateway, ref, plan))


def _attribute(ref: Ref) -> Attribute:
    return Attribute(ref.exprId().id(), ref.name(), ref)


def _name(expression: Ref) -> str:
    if expression.getClass().getSimpleName() == "AggregateExpression":
        return (
            f"{expression.aggregateFunction().prettyName()}{' distinct' if expression.isDistinct() else ''}"
        )
    return str(expression.prettyName())


def _expression(ref: Ref, *inputs: Node) -> Expression:
    """An expression with a text that is the same in every planning run: ids become input positions."""
    positions = {a.id: f"${i}.{j}" for i, n in enumerate(inputs) for j, a in enumerate(n.output)}
    others: dict[int, str] = {}

    def place(match: re.Match[str]) -> str:
        id_ = int(match[1])
        return positions.get(id_) or others.setdefault(id_, f"${len(others)}")

    return Expression(ref, _ID.sub(place, _unaliased(ref).toString()))


def _expressions(refs: Sequence[Ref] | Iterator[Ref], child: Node) -> tuple[Expression, ...]:
    return tuple(_expression(ref, child) for ref in refs)


def _unaliased(expression: Ref) -> Ref:
    return expression.child() if expression.getClass().getSimpleName() == "Alias" else expression


def _narrowed(node: Node, output: tuple[Attribute, ...]) -> Node:
    """`node` with just the columns of `output`, which it has under the same ids."""
    if [a.id for a in node.output] == [a.id for a in output]:
        return node
    return nodes.Project(output, node, tuple(_expression(a.ref, node) for a in output))


def _constant(expression: Ref) -> int:
    return int(expression.eval(None))


def _transform(expression: Ref, rule: Callable[[Ref], Ref | None]) -> Ref:
    """Replace, from the top down, what `rule` gives a replacement for."""
    replaced = rule(expression)
    if replaced is not None:
        return replaced
    children = list(_iterate(expression.children()))
    if not children:
        return expression
    changed = [_transform(child, rule) for child in children]
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expression
    return expression.withNewChildren(_seq(changed))


def _find_subquery(expression: Ref) -> Ref | None:
    if "subquery" not in expression.toString():
        return None
    if expression.getClass().getSimpleName() == "ScalarSubquery":
        return expression
    for child in _iterate(expression.children()):
        if (found := _find_subquery(child)) is not None:
            return found
    return None


def _replace(expression: Ref, target: Ref, replacement: Ref) -> Ref:
    id_ = target.exprId().id()

    def rule(e: Ref) -> Ref | None:
        found = e.getClass().getSimpleName() == "ScalarSubquery" and e.exprId().id() == id_
        return replacement if found else None

    return _transform(expression, rule)


def _windows(expression: Ref) -> Iterator[Ref]:
    """The window expressions in an expression, which the optimizer may have wrapped."""
    if expression.getClass().getSimpleName() == "WindowExpression":
        yield expression
        return
    for child in _iterate(expression.children()):
        yield from _windows(child)


def _is_session_window(expression: Ref) -> bool:
    attribute = expression.getClass().getSimpleName() == "AttributeReference"
    return attribute and "spark.sessionWindow" in expression.metadata().json()


def _functions(expressions: Sequence[Ref]) -> Iterator[Function]:
    seen: set[int] = set()

    def walk(e: Ref) -> Iterator[Function]:
        if e.getClass().getSimpleName() == "AggregateExpression":
            if e.resultId().id() not in seen:
                seen.add(e.resultId().id())
                function = e.aggregateFunction()
                condition = e.filter().get() if e.filter().isDefined() else None
                arguments = tuple(_iterate(function.children()))
                yield Function(e, function.prettyName(), arguments, condition, e.isDistinct())
            return
        for child in _iterate(e.children()):
            yield from walk(child)

    for expression in expressions:
        yield from walk(expression)


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# A decimal of up to 27 digits times a 32-bit weight fits Spark's 38 digits exactly; a longer one still
# keeps its scale if that is at most 6.
_DECIMAL_DIGITS = 27
_DECIMAL_SCALE = 6


def _not_additive(function: Function) -> str | None:
    """Why an aggregate function cannot be kept as a sum that changes add to; None if it can."""
    if function.distinct:
        return f"{function.name} distinct needs the distinct values of the group"
    if function.name == "count":
        return None
    if function.name not in ("sum", "avg"):
        return f"{function.name} cannot be updated from the change alone"
    type_ = function.arguments[0].dataType().simpleString()
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


_BY_ROWS = ("RowNumber", "NTile", "Lag", "Lead", "NthValue")
_BY_PEERS = ("Rank", "DenseRank", "PercentRank", "CumeDist")


def _by_rows(over: Ref) -> bool:
    """Whether a function's value depends on the order of equal rows, which may then be made total."""
    kind = over.windowFunction().getClass().getSimpleName()
    if kind in _BY_ROWS or kind in _BY_PEERS:
        return kind in _BY_ROWS
    frame = over.windowSpec().frameSpecification()
    return frame.getClass().getSimpleName() == "SpecifiedWindowFrame" and "ROWS" in frame.sql()
