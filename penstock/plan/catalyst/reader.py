"""Read Catalyst's optimized plan into the typed plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from penstock.errors import PlanError
from penstock.plan import nodes
from penstock.plan.catalyst.functions import (
    find_subquery,
    functions_of,
    has_subquery,
    is_session_window,
    name_of,
    not_additive,
    outside_functions,
    replace_subquery,
    windows,
)
from penstock.plan.catalyst.jvm import jvm_of
from penstock.plan.catalyst.refs import (
    Ref,
    attribute,
    constant,
    expression_of,
    expressions_of,
    is_plan,
    iterate,
    kind,
    seq,
    transform,
    type_name,
    unaliased,
    walk,
)
from penstock.plan.nodes import Attribute, JoinType, Node

# What Spark would replace by the moment of planning.
_MOMENTS = ("current_time", "current_timestamp", "current_date", "localtimestamp")
_SUBQUERIES = ("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery")

# Where scalar subqueries become joins.
_LIFTED = ("Project", "Filter", "Join", "Aggregate")

_JOIN_TYPES = {
    "Inner": JoinType.INNER,
    "Cross": JoinType.INNER,
    "LeftOuter": JoinType.LEFT,
    "RightOuter": JoinType.LEFT,
    "FullOuter": JoinType.FULL,
    "LeftSemi": JoinType.SEMI,
    "LeftAnti": JoinType.ANTI,
}


def frame_of(spark: SparkSession, plan: Ref) -> DataFrame:
    """A logical plan as a DataFrame, with a physical plan of its own."""
    return DataFrame(jvm_of(spark).dataset.ofRows(spark._jsparkSession, plan), spark)


class Reader:
    """Reads queries of one SparkSession, over relations that it declares there."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm = jvm_of(spark)
        self._leaves: dict[int, str] = {}

    def declare(self, name: str, schema: StructType) -> None:
        """Make `name` a relation that queries can read: opaque, so that nothing above it is folded away."""
        rdd = self.spark.sparkContext._jsc.emptyRDD().rdd()
        type_ = self._jvm.type.fromJson(schema.json())
        frame = self.spark._jsparkSession.internalCreateDataFrame(rdd, type_, False)
        self._leaves[rdd.id()] = name
        frame.createOrReplaceTempView(f"`{name}`")

    def schema(self, attributes: Sequence[Attribute]) -> list[StructField]:
        """Names, types and nullability of columns."""
        return [
            StructField(a.name, _parse_datatype_json_string(a.ref.dataType().json()), a.ref.nullable())
            for a in attributes
        ]

    def read(self, query: DataFrame) -> Node:
        """The typed plan of a query; PlanError names the first operator that has no incremental rule."""
        return self._node(query._jdf.queryExecution().optimizedPlan())

    def optimize(self, query: DataFrame) -> None:
        """Let Spark raise what it finds wrong with a query only when it plans it."""
        query._jdf.queryExecution().optimizedPlan()

    def non_deterministic(self, query: DataFrame) -> str | None:
        """The name of a function in the query whose value changes from call to call."""
        return next(self._non_deterministic(query._jdf.queryExecution().analyzed()), None)

    def _non_deterministic(self, plan: Ref) -> Iterator[str]:
        if plan.nodeName() == "Sample":
            yield "TABLESAMPLE"
        for expression in iterate(plan.expressions()):
            if not expression.deterministic():
                yield from self._culprits(expression)
            if "current_time" in expression.toString():
                yield from (name for e in walk(expression) if (name := e.prettyName()) in _MOMENTS)
        for child in [
            *iterate(plan.children()),
            *iterate(plan.subqueries()),
            *iterate(plan.innerChildren()),
        ]:
            if is_plan(child):
                yield from self._non_deterministic(child)

    def _culprits(self, expression: Ref) -> Iterator[str]:
        children = [c for c in iterate(expression.children()) if not c.deterministic()]
        for child in children:
            yield from self._culprits(child)
        aggregate = (
            expression.getClass().getName().startswith("org.apache.spark.sql.catalyst.expressions.aggregate.")
        )
        subquery = kind(expression) in _SUBQUERIES
        if not children and not aggregate and not subquery:
            yield expression.prettyName()

    def _node(self, plan: Ref) -> Node:
        operator = plan.nodeName()
        if operator not in _LIFTED and has_subquery(iterate(plan.expressions())):
            raise PlanError(f"a scalar subquery within {operator} has no incremental rule")
        output = tuple(attribute(a) for a in iterate(plan.output()))
        match operator:
            case "LogicalRDD" if plan.rdd().id() in self._leaves:
                return nodes.Scan(output, self._leaves[plan.rdd().id()])
            case "LocalRelation" | "OneRowRelation" | "Range":
                return nodes.Values(output, plan, self._content(plan))
            case "Project":
                child, exprs = self._lift(plan.child(), list(iterate(plan.projectList())))
                return nodes.Project(output, child, expressions_of(exprs, child))
            case "Filter":
                child, [condition] = self._lift(plan.child(), [plan.condition()])
                filtered = nodes.Filter(child.output, child, expression_of(condition, child))
                return _narrowed(filtered, output)
            case "Join":
                return self._join(plan, output)
            case "Aggregate":
                return self._aggregate(plan, output)
            case "Window":
                child = self._node(plan.child())
                over = [w for e in iterate(plan.windowExpressions()) for w in windows(e)]
                names = tuple(name_of(w.windowFunction()) for w in over)
                _refuse_collations(plan.partitionSpec())
                partition = expressions_of(iterate(plan.partitionSpec()), child)
                text = "; ".join(expression_of(e, child).mark for e in iterate(plan.windowExpressions()))
                return nodes.Window(output, child, plan, partition, names, text)
            case "Union":
                return nodes.Union(output, tuple(self._node(c) for c in iterate(plan.children())))
            case "Generate":
                child = self._node(plan.child())
                dropped = plan.unrequiredChildIndex().toString()
                text = f"{expression_of(plan.generator(), child).mark} outer={plan.outer()} {dropped}"
                return nodes.Generate(output, child, plan, name_of(plan.generator()), text)
            case "Expand":
                child = self._node(plan.child())
                projections = tuple(expressions_of(iterate(p), child) for p in iterate(plan.projections()))
                return nodes.Expand(output, child, projections)
            case "GlobalLimit" | "Offset":
                return self._limit(plan)
            case "LocalLimit" | "Sort" | "Repartition" | "RepartitionByExpression" | "RebalancePartitions":
                # A view has no order, and how rows are spread is not the query's to say. A LocalLimit
                # without its GlobalLimit is only a hint that a subset would do.
                return self._node(plan.child())
        raise PlanError(f"{operator} has no incremental rule")

    def _content(self, plan: Ref) -> str:
        """Constant rows as text: the same rows are the same text in every planning run."""
        rows = frame_of(self.spark, plan).toArrow()
        return f"{rows.schema} {rows.to_pylist()!r}"

    def _limit(self, plan: Ref) -> Node:
        limit: int | None = None
        offset = 0
        while plan.nodeName() in ("GlobalLimit", "LocalLimit", "Offset"):
            if plan.nodeName() == "Offset":
                offset += constant(plan.offsetExpr())
            elif plan.nodeName() == "GlobalLimit":
                if offset:
                    break  # an offset above a limit: the limit applies first
                bound = constant(plan.limitExpr())
                limit = bound if limit is None else min(limit, bound)
            plan = plan.child()
        projects = []
        while plan.nodeName() == "Project":  # drops columns that only the order needs
            projects.append(plan)
            plan = plan.child()
        order: list[Ref] = []
        if plan.nodeName() == "Sort":
            order = list(iterate(plan.order()))
            if has_subquery(iter(order)):
                raise PlanError("a scalar subquery within ORDER BY has no incremental rule")
            plan = plan.child()
        child = self._node(plan)
        node: Node = nodes.Limit(child.output, child, expressions_of(order, child), limit, offset)
        for project in reversed(projects):
            output = tuple(attribute(a) for a in iterate(project.output()))
            node, exprs = self._lift(node, list(iterate(project.projectList())))
            node = nodes.Project(output, node, expressions_of(exprs, node))
        return node

    def _join(self, plan: Ref, output: tuple[Attribute, ...]) -> Node:
        spelled = plan.joinType().toString()
        condition = plan.condition().get() if plan.condition().isDefined() else None
        left_plan, right_plan = plan.left(), plan.right()
        left_keys: list[Ref] = []
        right_keys: list[Ref] = []
        equi = self._jvm.equi_join.unapply(plan)
        if equi.isDefined():
            left_keys, right_keys = list(iterate(equi.get()._2())), list(iterate(equi.get()._3()))
            _refuse_collations(equi.get()._2())
            if has_subquery(iter([*left_keys, *right_keys])):
                left_keys, right_keys = [], []  # a key that is known only after the join
        if spelled == "RightOuter":
            left_plan, right_plan, left_keys, right_keys = right_plan, left_plan, right_keys, left_keys
        left, right = self._node(left_plan), self._node(right_plan)
        if condition is not None:
            left, [condition] = self._lift(left, [condition])
        if spelled.startswith("ExistenceJoin"):
            type_ = JoinType.EXISTENCE
            produced = (*left.output, attribute(plan.joinType().exists()))
        elif spelled in _JOIN_TYPES:
            type_ = _JOIN_TYPES[spelled]
            both = type_ in (JoinType.INNER, JoinType.LEFT, JoinType.FULL)
            produced = (*left.output, *right.output) if both else left.output
        else:
            raise PlanError(f"{spelled} join has no incremental rule")
        join = nodes.Join(
            produced,
            left,
            right,
            type_,
            expressions_of(left_keys, left),
            expressions_of(right_keys, right),
            None if condition is None else expression_of(condition, left, right),
        )
        return _narrowed(join, output)

    def _aggregate(self, plan: Ref, output: tuple[Attribute, ...]) -> Node:
        grouping = list(iterate(plan.groupingExpressions()))
        _refuse_collations(plan.groupingExpressions())
        if any(is_session_window(g) for g in grouping):
            # Spark merges overlapping sessions in the physical plan only.
            raise PlanError("session_window has no incremental rule")
        expressions = list(iterate(plan.aggregateExpressions()))
        if has_subquery(iter(expressions)):
            computed = [e for e in expressions if not any(unaliased(e).semanticEquals(g) for g in grouping)]
            if any(has_subquery(outside_functions(e)) for e in computed):
                return self._aggregate_below(plan, output)
        child, lifted = self._lift(plan.child(), grouping + expressions)
        grouping, expressions = lifted[: len(grouping)], lifted[len(grouping) :]
        functions = list(functions_of(expressions))
        return nodes.Aggregate(
            output,
            child,
            expressions_of(grouping, child),
            expressions_of(expressions, child),
            tuple(f.name for f in functions),
            next((reason for f in functions if (reason := not_additive(f))), None),
        )

    def _aggregate_below(self, plan: Ref, output: tuple[Attribute, ...]) -> Node:
        """An aggregate whose result is combined with scalar subqueries: first the aggregate, then these.

        SELECT f(x) + (SELECT ...) GROUP BY g  =  SELECT a + (SELECT ...) FROM (SELECT f(x) AS a GROUP BY g)
        """
        grouping = list(iterate(plan.groupingExpressions()))
        keys = [self._referable(g) for g in grouping]
        functions: list[Ref] = []

        def result(e: Ref) -> Ref | None:
            for expression, key in zip(grouping, keys, strict=True):
                if e.semanticEquals(expression):
                    return key.toAttribute()
            if kind(e) != "AggregateExpression":
                return None
            functions.append(self._referable(e))
            return functions[-1].toAttribute()

        expressions = [transform(e, result) for e in iterate(plan.aggregateExpressions())]
        below = self._jvm.logical.Aggregate(
            plan.groupingExpressions(), seq([*keys, *functions]), plan.child(), plan.hint()
        )
        child, lifted = self._lift(self._node(below), expressions)
        return nodes.Project(output, child, expressions_of(lifted, child))

    def _referable(self, expression: Ref) -> Ref:
        """An expression that can be referred to."""
        if kind(expression) == "AttributeReference":
            return expression
        id_ = self._jvm.named.newExprId()
        nothing = self._jvm.nothing
        return self._jvm.expressions.Alias(expression, "value", id_, nothing, self._jvm.none, nothing)

    def _lift(self, child: Ref | Node, expressions: list[Ref]) -> tuple[Node, list[Ref]]:
        """Turn uncorrelated scalar subqueries into joins with their one row.

        f(A, (SELECT s ...)) = f(A x S), where S has exactly one row.
        """
        node = child if isinstance(child, Node) else self._node(child)
        rewritten = []
        for expression in expressions:
            while (subquery := find_subquery(expression)) is not None:
                single = self._single_row(subquery.plan())
                joined = (*node.output, *single.output)
                node = nodes.Join(joined, node, single, JoinType.INNER, (), (), None)
                expression = replace_subquery(expression, subquery, single.output[0].ref)
            rewritten.append(expression)
        return node, rewritten

    def _single_row(self, plan: Ref) -> Node:
        """The plan of a scalar subquery, made to have exactly one row as its value does."""
        bottom = plan
        while bottom.nodeName() == "Project":
            bottom = bottom.child()
        if bottom.nodeName() == "Aggregate" and bottom.groupingExpressions().isEmpty():
            return self._node(plan)
        frame = frame_of(self.spark, plan).toDF("value")
        single = frame.agg(F.expr("count(1) AS n"), F.expr("any_value(value) AS value"))
        checked = single.selectExpr(
            "CASE WHEN n > 1 THEN raise_error('a scalar subquery returned more than one row')"
            " ELSE value END AS value"
        )
        return self._node(checked._jdf.queryExecution().optimizedPlan())


def _refuse_collations(keys: Ref) -> None:
    """Text that a collation takes for equal has different hashes, so it cannot be found by them."""
    if any("collate" in type_name(key) for key in iterate(keys)):
        raise PlanError("a key with a collation other than UTF8_BINARY has no incremental rule")


def _narrowed(node: Node, output: tuple[Attribute, ...]) -> Node:
    """`node` with just the columns of `output`, which it has under the same ids."""
    if [a.id for a in node.output] == [a.id for a in output]:
        return node
    return nodes.Project(output, node, tuple(expression_of(a.ref, node) for a in output))
