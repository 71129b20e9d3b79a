"""Joins, from the change of each side and the state of the other.

An inner join is bilinear:

    d (A >< B) = dA >< B' + A >< dB          A, B: before, A', B': after the change

The stage looks the changed keys up in the other side's trace and pairs rows by the 64-bit hash of
the key; Spark then evaluates the whole condition on the candidate pairs, equalities included, so a
hash that two keys share costs a candidate and never a wrong row. Without an equality every pair
is a candidate: still only the changed rows of one side times the other side, never A x B.

The other joins follow from how often a row matches, m(a) = w(a) * |{b : c(a, b)}|, which the pairs
that came and went change like any sum:

    semi       a where m > 0
    anti       a where m = 0
    existence  a with the flag m > 0
    left       pairs, and a with NULLs where m = 0
    full       left, and b with NULLs where its m = 0

m is the second weight of the trace that the rows of that side are kept in anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, ByteType, LongType, StructField, StructType

from penstock.plan import nodes
from penstock.plan.catalyst import attribute_id
from penstock.plan.compiler import KEY, ROW, Arrangement, Compiler, arrow_types, columns, key_hash, row_hash
from penstock.plan.nodes import Expression, JoinType, Node
from penstock.trace.batch import ranges, scan
from penstock.trace.rows import Index, Layout, Rows, concat, distinct, find, take
from penstock.trace.task import Stage, Task, sliced

LEFT, RIGHT, PAIR = 0, 1, 2
_COUNTED = (pa.int64(), pa.int64())
_PAIRS_AT_ONCE = 1 << 18


def join(node: nodes.Join, c: Compiler) -> DataFrame | None:
    inner = node.type is JoinType.INNER
    left = _Side.of(node.left, node.left_keys, c, "l", shareable=inner, filters=inner)
    right = _Side.of(
        node.right, node.right_keys, c, "r", shareable=node.type is not JoinType.FULL, filters=inner
    )
    if left.frame is None and right.frame is None:
        return None
    counts_left = node.type is not JoinType.INNER
    counts_right = node.type is JoinType.FULL
    left_trace = left.arrangement(node, c, counted=counts_left)
    right_trace = right.arrangement(node, c, counted=counts_right)

    frames = [
        side.tagged(tag, (left, right))
        for tag, side in ((LEFT, left), (RIGHT, right))
        if side.frame is not None
    ]
    keyed = bool(node.left_keys)
    merged = c.exchange(c.union(frames), single=not keyed)
    names = [*left.names, *right.names]
    columns_out = [
        StructField(n, f.dataType) for n, f in zip(names, [*left.schema, *right.schema], strict=True)
    ]
    hashes = [StructField(n, LongType()) for n in ("_lk", "_lr", "_rk", "_rr")] if counts_left else []
    tags = [StructField("_t", ByteType())] if counts_left else []
    bits = c.bits if keyed else 0
    pairs = c.stage(
        merged,
        PairStage(left_trace, right_trace, keyed, bits, counts_left, counts_right),
        StructType([*tags, *hashes, *columns_out, StructField("_w", LongType())]),
    )
    pairs = left.finished(right.finished(pairs, c), c)
    if not counts_left:
        return _inner(node, pairs, left, right, c)
    return _counted(node, pairs, left, right, (left_trace, right_trace), bits, c)


def _inner(node: nodes.Join, pairs: DataFrame, left: _Side, right: _Side, c: Compiler) -> DataFrame:
    frame = pairs.selectExpr(*_positional([*left.visible, *right.visible]), "_w")
    bound = c.catalyst.bind(frame, node.output)
    if node.condition is not None:
        bound = c.catalyst.filter(bound, node.condition.ref)
    return c.catalyst.select(bound, [a.ref for a in node.output])


def _counted(
    node: nodes.Join,
    pairs: DataFrame,
    left: _Side,
    right: _Side,
    traces: tuple[Arrangement, Arrangement],
    bits: int,
    c: Compiler,
) -> DataFrame:
    inputs = (*node.left.output, *node.right.output)
    kept = ("_t", "_lk", "_lr", "_rk", "_rr", "_w")
    frame = pairs.selectExpr(*_positional([*left.visible, *right.visible]), *kept)
    if node.condition is not None:
        bound = c.catalyst.bind(frame, inputs, kept)
        refs = [a.ref for a in inputs]
        matched = c.catalyst.select(bound, [*refs, node.condition.ref], kept)
        flag = f"c{len(inputs)}"
        # A tag decides before the condition does: rows that are not pairs have NULLs on one side.
        frame = matched.where(f"_t <> {PAIR} OR {flag}").drop(flag)
    names = columns(frame)
    width = len(left.visible)
    stage = MatchStage(node.type, traces[0], traces[1], width, arrow_types(frame.select(*names).schema), bits)
    out = names if node.type in (JoinType.LEFT, JoinType.FULL) else names[:width]
    types = {f.name: f.dataType for f in frame.schema.fields}
    fields_out = [StructField(f"c{i}", types[name]) for i, name in enumerate(out)]
    if node.type is JoinType.EXISTENCE:
        fields_out.append(StructField(f"c{width}", BooleanType()))
    return c.stage(
        frame.select(*kept, *names), stage, StructType([*fields_out, StructField("_w", LongType())])
    )


@dataclass(frozen=True)
class _Side:
    """One input of a join.

    If the input is a keyed relation, seen through projections and filters, and is joined by its
    key, the relation's own trace is looked up instead of a second copy; what lies between the
    relation and the join (`chain`) is then applied to the pairs.
    """

    node: Node
    keys: Sequence[Expression]
    frame: DataFrame | None  # _k, _r, the stored columns, _w
    prefix: str
    schema: Sequence[StructField]  # of the stored columns
    shared: str | None
    chain: tuple[nodes.Project | nodes.Filter, ...]

    @classmethod
    def of(
        cls,
        node: Node,
        keys: Sequence[Expression],
        c: Compiler,
        prefix: str,
        *,
        shareable: bool,
        filters: bool,
    ) -> _Side:
        """`filters`: filters in the chain may wait until the pairs are there."""
        chain, base, columns_ = _chain(node, keys) if shareable else ((), node, None)
        if not filters and any(isinstance(link, nodes.Filter) for link in chain):
            columns_ = None
        if columns_ is not None and isinstance(base, nodes.Scan):
            own = c.relations.keyed(base.relation)
            if own.columns == columns_:
                frame = c.delta(base)
                schema = c.relations.schema(base.relation)
                if frame is not None:
                    names = [f"c{i}" for i in range(len(schema))]
                    frame = frame.selectExpr(
                        f"{key_hash([names[i] for i in columns_], frame.schema)} AS _k",
                        f"{row_hash(names, frame.schema, ROW)} AS _r",
                        *names,
                        "_w",
                    )
                return cls(node, keys, frame, prefix, schema, own.trace, chain)
        frame = c.delta(node)
        schema = c.schema(node)
        if frame is not None:
            frame = _with_hashes(frame, node, keys, c)
        return cls(node, keys, frame, prefix, schema, None, ())

    @property
    def names(self) -> list[str]:
        """The stored columns as the stage sees them."""
        return [f"{self.prefix}{i}" for i in range(len(self.schema))]

    @property
    def visible(self) -> list[str]:
        """The columns of the input itself, after `finished`."""
        return [f"{self.prefix}{i}" for i in range(len(self.node.output))]

    def arrangement(self, join: nodes.Join, c: Compiler, *, counted: bool) -> Arrangement:
        """The trace to look this side up in; match counts belong to one join and cannot be shared."""
        types = arrow_types(StructType(list(self.schema)))
        if self.shared is not None:
            return Arrangement(self.shared, Layout(types), writes=False)
        by = f"{self.node.label} by {', '.join(k.text for k in self.keys) or 'row'}"
        if counted:
            return c.arrange(f"match-{self.prefix}", join, self.keys, Layout(types, _COUNTED), by)
        return c.arrange("join", self.node, self.keys, Layout(types), by)

    def tagged(self, tag: int, sides: tuple[_Side, _Side]) -> DataFrame:
        """This side's rows beside NULLs for the other side."""
        assert self.frame is not None
        both = []
        for side in sides:
            for i, (name, column) in enumerate(zip(side.names, side.schema, strict=True)):
                value = F.col(f"c{i}") if side is self else F.lit(None).cast(column.dataType)
                both.append(value.alias(name))
        return self.frame.select(F.lit(tag).cast("tinyint").alias("_t"), "_k", "_r", *both, "_w")

    def finished(self, pairs: DataFrame, c: Compiler) -> DataFrame:
        """Apply to the pairs what lies between the relation and the join."""
        if not self.chain:
            return pairs
        others = [name for name in pairs.columns if name not in self.names]
        frame = pairs.selectExpr(*(f"{name} AS c{i}" for i, name in enumerate(self.names)), *others)
        for node in self.chain:
            bound = c.catalyst.bind(frame, node.child.output, others)
            if isinstance(node, nodes.Filter):
                bound = c.catalyst.filter(bound, node.condition.ref)
                frame = c.catalyst.select(bound, [a.ref for a in node.output], others)
            else:
                frame = c.catalyst.select(bound, [e.ref for e in node.expressions], others)
        return frame.selectExpr(*(f"c{i} AS {name}" for i, name in enumerate(self.visible)), *others)


def _chain(
    node: Node, keys: Sequence[Expression]
) -> tuple[tuple[nodes.Project | nodes.Filter, ...], Node, tuple[int, ...] | None]:
    """Projections and filters down to a scan, innermost first, and the scan's columns that are the keys."""
    chain: list[nodes.Project | nodes.Filter] = []
    ids = [attribute_id(key) for key in keys]
    while isinstance(node, nodes.Project | nodes.Filter):
        chain.insert(0, node)
        if isinstance(node, nodes.Project):
            made = {a.id: e for a, e in zip(node.output, node.expressions, strict=True)}
            ids = [attribute_id(made[i]) if i in made else None for i in ids]
        node = node.child
    position = {a.id: i for i, a in enumerate(node.output)}
    found = [position.get(i) if i is not None else None for i in ids]
    if not keys or any(at is None for at in found):
        return (), node, None
    return tuple(chain), node, tuple(at for at in found if at is not None)


def _with_hashes(frame: DataFrame, node: Node, keys: Sequence[Expression], c: Compiler) -> DataFrame:
    """The frame with _k, the hash of the key (of the row, if there is none), and _r.

    A key with a NULL never matches: such rows are spread by their row hash instead of piling up.
    """
    names = [f"c{i}" for i in range(len(node.output))]
    if not keys:
        return frame.selectExpr(
            f"{row_hash(names, frame.schema, KEY)} AS _k",
            f"{row_hash(names, frame.schema, ROW)} AS _r",
            *names,
            "_w",
        )
    bound = c.catalyst.bind(frame, node.output)
    both = c.catalyst.select(bound, [*(a.ref for a in node.output), *(k.ref for k in keys)])
    by = [f"c{len(names) + i}" for i in range(len(keys))]
    row = row_hash(names, both.schema, ROW)
    missing = " OR ".join(f"isnull({name})" for name in by)
    return both.selectExpr(
        f"CASE WHEN {missing} THEN {row} ELSE {key_hash(by, both.schema)} END AS _k",
        f"{row} AS _r",
        *names,
        "_w",
    )


def _positional(names: Sequence[str]) -> list[str]:
    return [f"{name} AS c{i}" for i, name in enumerate(names)]


@dataclass(frozen=True)
class PairStage(Stage):
    """Candidate pairs from the change of both sides and the state of each.

    With `pass_left`/`pass_right` that side's changed rows follow as rows of their own, to be counted.
    """

    left: Arrangement
    right: Arrangement
    keyed: bool
    bits: int
    pass_left: bool
    pass_right: bool

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left, right = self._gather(batches)
        if self.left.writes and not self.pass_left:
            task.append(self.left.trace, left, self.bits)
        if self.right.writes and not self.pass_right:
            task.append(self.right.trace, right, self.bits)
        match = _pair_keys if self.keyed else _pair_all
        for others in self._old(task, self.right, left.k):
            yield from self._pairs(left, others, match(left, others))
        yield from self._pairs(left, right, match(left, right))
        for others in self._old(task, self.left, right.k):
            yield from self._pairs(others, right, match(others, right))
        if self.pass_left:
            yield from self._emit(LEFT, left, None, left.w)
        if self.pass_right:
            yield from self._emit(RIGHT, None, right, right.w)

    def _gather(self, batches: Iterator[pa.RecordBatch]) -> tuple[Rows, Rows]:
        """The two sides of the change; the columns are _t, _k, _r, left, right, _w."""
        width = len(self.left.layout.columns)
        left_layout, right_layout = Layout(self.left.layout.columns), Layout(self.right.layout.columns)
        sides: tuple[list[Rows], list[Rows]] = ([], [])
        for batch in batches:
            tag = batch.column(0).to_numpy(zero_copy_only=False)
            arrays = batch.columns
            head, weight = arrays[1:3], arrays[-1]
            parts = (arrays[3 : 3 + width], arrays[3 + width : -1])
            for side, layout in ((LEFT, left_layout), (RIGHT, right_layout)):
                index = np.flatnonzero(tag == side)
                if len(index) == 0:
                    continue
                rows = Rows(
                    layout,
                    head[0].to_numpy(),
                    head[1].to_numpy(),
                    tuple(parts[side]),
                    (weight.to_numpy(),),
                )
                sides[side].append(rows if len(index) == len(tag) else rows.take(index))
        return concat(left_layout, sides[LEFT]).consolidated(), concat(
            right_layout, sides[RIGHT]
        ).consolidated()

    def _old(self, task: Task, side: Arrangement, keys: Index) -> Iterator[Rows]:
        """The rows of a trace before this transaction that could pair with the given keys."""
        if len(keys) == 0:
            return
        if self.keyed:
            yield task.lookup(side.trace, side.layout, distinct(keys))
        else:
            yield from scan(side.layout, task.old(side.trace, side.layout))

    def _pairs(
        self, left: Rows, right: Rows, matches: Iterator[tuple[Index, Index]]
    ) -> Iterator[pa.RecordBatch]:
        for i, j in matches:
            yield from self._emit(PAIR, left.take(i), right.take(j), left.w[i] * right.w[j])

    def _emit(
        self,
        tag: int,
        left: Rows | None,
        right: Rows | None,
        weight: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> Iterator[pa.RecordBatch]:
        count = len(weight)
        arrays: list[pa.Array] = []
        if self.pass_left:
            arrays.append(pa.array(np.full(count, tag, np.int8)))
            for rows in (left, right):
                for which in ("k", "r"):
                    values = pa.nulls(count, pa.int64()) if rows is None else pa.array(getattr(rows, which))
                    arrays.append(values)
        for rows, layout in ((left, self.left.layout), (right, self.right.layout)):
            if rows is None:
                arrays += [pa.nulls(count, type_) for type_ in layout.columns]
            else:
                arrays += rows.columns
        arrays.append(pa.array(weight))
        names = [f"x{i}" for i in range(len(arrays))]
        yield from sliced(pa.schema([(n, a.type) for n, a in zip(names, arrays, strict=True)]), arrays)


def _pair_keys(left: Rows, right: Rows) -> Iterator[tuple[Index, Index]]:
    """Positions of all pairs with equal key hash, a bounded number at a time; both sides are sorted."""
    low = np.searchsorted(right.k, left.k, "left")
    count = np.searchsorted(right.k, left.k, "right") - low
    total = np.cumsum(count)
    start = 0
    while start < len(left):
        before = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + _PAIRS_AT_ONCE, "right")))
        part = slice(start, stop)
        i = np.repeat(np.arange(start, stop), count[part])
        if len(i):
            yield i, ranges(low[part], count[part])
        start = stop


def _pair_all(left: Rows, right: Rows) -> Iterator[tuple[Index, Index]]:
    """Positions of every pair, a bounded number at a time."""
    if len(left) == 0 or len(right) == 0:
        return
    step = max(1, _PAIRS_AT_ONCE // len(right))
    for start in range(0, len(left), step):
        some = np.arange(start, min(start + step, len(left)))
        yield np.repeat(some, len(right)), np.tile(np.arange(len(right)), len(some))


@dataclass(frozen=True)
class MatchStage(Stage):
    """Count matches per row of a side, and emit the rows whose count became or ceased to be zero.

    The columns are _t, _lk, _lr, _rk, _rr, _w, then left and right.
    """

    type: JoinType
    left: Arrangement
    right: Arrangement
    width: int
    types: tuple[pa.DataType, ...]
    bits: int

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            if batch.num_rows == 0:
                continue
            parts.append(batch)
            if self.type in (JoinType.LEFT, JoinType.FULL):
                yield from self._matched(batch)
        yield from self._unmatched(task, parts, LEFT)
        if self.type is JoinType.FULL:
            yield from self._unmatched(task, parts, RIGHT)

    def _matched(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        index = np.flatnonzero(batch.column(0).to_numpy() == PAIR)
        if len(index):
            arrays = batch.columns
            yield from self._emit(list(take([*arrays[6:], arrays[5]], index)))

    def _unmatched(self, task: Task, batches: list[pa.RecordBatch], side: int) -> Iterator[pa.RecordBatch]:
        arrangement = (self.left, self.right)[side]
        layout = Layout(arrangement.layout.columns, _COUNTED)
        parts = [part for batch in batches if len(part := self._counts(batch, side, layout))]
        change = concat(layout, parts).consolidated()
        if len(change) == 0:
            return
        old = task.lookup(arrangement.trace, layout, distinct(change.k))
        if arrangement.writes:
            task.append(arrangement.trace, change, self.bits)
        at = find(old, change.k, change.r)
        w, m = (np.where(at >= 0, weight[at] if len(old) else 0, 0) for weight in old.weights)
        now_w, now_m = w + change.weights[0], m + change.weights[1]
        if self.type is JoinType.EXISTENCE:
            yield from self._flagged(change, (w, m), (now_w, now_m))
            return
        there = np.not_equal if self.type is JoinType.SEMI else np.equal
        weight = now_w * there(now_m, 0) - w * there(m, 0)
        index = np.flatnonzero(weight)
        if len(index) == 0:
            return
        columns_ = list(take(change.columns, index))
        if self.type in (JoinType.LEFT, JoinType.FULL):
            other = self.types[self.width :] if side == LEFT else self.types[: self.width]
            nulls = [pa.nulls(len(index), type_) for type_ in other]
            columns_ = columns_ + nulls if side == LEFT else nulls + columns_
        yield from self._emit([*columns_, pa.array(weight[index])])

    def _flagged(
        self, change: Rows, old: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]
    ) -> Iterator[pa.RecordBatch]:
        """Each row with the flag it had, retracted, and the flag it has."""
        for (w, m), sign in ((old, -1), (new, 1)):
            index = np.flatnonzero(w)
            if len(index):
                flag = pa.array(m[index] != 0)
                yield from self._emit([*take(change.columns, index), flag, pa.array(sign * w[index])])

    def _counts(self, batch: pa.RecordBatch, side: int, layout: Layout) -> Rows:
        """One side of the pairs as matches, and that side's own rows as rows."""
        tag = batch.column(0).to_numpy()
        index = np.flatnonzero((tag == PAIR) | (tag == side))
        arrays = batch.columns
        columns_ = arrays[6 : 6 + self.width] if side == LEFT else arrays[6 + self.width :]
        head = take([arrays[1 + 2 * side], arrays[2 + 2 * side], arrays[5]], index)
        k, r, w = (a.to_numpy() for a in head)
        own = tag[index] == side
        return Rows(layout, k, r, take(columns_, index), (np.where(own, w, 0), np.where(own, 0, w)))

    @staticmethod
    def _emit(arrays: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(f"x{i}", a.type) for i, a in enumerate(arrays)])
        yield from sliced(schema, arrays)
