"""From what arrives to the change of a table.

A table with a key keeps the last row that arrived for each key:

    dT = - old(k) + new(k)     for each key k in the input, new(k) absent if its last row is a deletion

A table without one is a bag: rows are counted. Deletions are applied in the order of arrival, and
one that finds no row is counted as an error and ignored, so a weight never becomes negative.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType
from xxhash import xxh64_intdigest

from penstock.plan.compiler import KEY, ROW, Compiler, arrow_types, key_hash, row_hash
from penstock.trace.rows import Index, Layout, Rows, concat, distinct, find, take
from penstock.trace.task import Stage, Task, sliced

NO_OUTPUT = StructType([StructField("_", LongType())])


def table_change(
    frame: DataFrame,
    name: str,
    schema: Sequence[StructField],
    key: tuple[int, ...],
    trace: str,
    c: Compiler,
    *,
    append_only: bool,
    emit: bool,
    errors: str | None = None,
) -> DataFrame:
    """The change of a table from its input: `frame` has c0, c1, ..., `_op` and `_seq`, and if there is a
    trace for `errors` also `_error`."""
    names = [f"c{i}" for i in range(len(schema))]
    own = StructType([StructField(n, f.dataType, f.nullable) for n, f in zip(names, schema, strict=True)])
    keys = [names[i] for i in key]
    found = key_hash(keys, own) if key else row_hash(names, own, KEY)
    # -0.0 equals 0.0, so a table has only one of them: what is deleted is then what was inserted.
    zero = {"float": "CAST(0 AS FLOAT)", "double": "0D"}
    values = [
        f"{f.name} + {zero[t]} AS {f.name}" if (t := f.dataType.typeName()) in zero else f.name for f in own
    ]
    more = ["_seq"] if errors is None else ["_error", "_seq"]
    keyed = frame.selectExpr(*values, "CAST(_op AS BIGINT) AS _op", *more).selectExpr(
        f"{found} AS _k", f"{row_hash(names, own, ROW)} AS _r", *names, "_op", *more
    )
    layout = Layout(arrow_types(own))
    stage: Stage
    if key:
        stage = UpsertStage(trace, layout, name, key, c.bits, emit, errors)
    else:
        stage = BagStage(trace, layout, name, append_only, c.bits, emit)
    out = StructType([*(StructField(f.name, f.dataType) for f in own), StructField("_w", LongType())])
    return c.stage(c.exchange(keyed), stage, out if emit else NO_OUTPUT)


def _gather(layout: Layout, filled: Sequence[pa.RecordBatch]) -> tuple[Rows, np.ndarray]:
    """Rows with `_op` as their weight, and the order in which they arrived."""
    parts = [Rows.from_batch(layout, batch) for batch in filled]
    orders = [batch.column(batch.num_columns - 1).to_numpy() for batch in filled]
    return concat(layout, parts), np.concatenate(orders) if orders else np.empty(0, np.int64)


def _filled(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [batch for batch in batches if batch.num_rows]


ERROR_FIELDS = ("error", "record")
"""What is kept of a record that cannot be read, beside its key: what is wrong with it, and its text."""


def _error_rows(layout: Layout, last: Rows, key: Sequence[int], texts: Sequence[str | None]) -> Rows:
    """The errors among what arrived last for each key, by those keys. Two errors of one key are two rows, and
    so are the same error of two keys: the row hash, which is of the key alone here, is a part of theirs."""
    at = np.array([row for row, text in enumerate(texts) if text is not None], np.intp)
    found = [json.loads(text) for text in texts if text is not None]
    columns = [
        *take([last.columns[i] for i in key], at),
        *(pa.array([item[i] for item in found], pa.string()) for i in range(len(ERROR_FIELDS))),
    ]
    own = np.array([xxh64_intdigest(text.encode()) for text in texts if text is not None], np.uint64)
    r = own.view(np.int64) ^ last.r[at]
    return Rows(layout, last.k[at], r, tuple(columns), (np.ones(len(at), np.int64),))


def tell_rows(task: Task, trace: str, change: Rows) -> None:
    """Report by how much a relation grew."""
    if len(change):
        task.tell(("rows", trace, str(change.k[0])), int(change.w.sum()))


SPLIT_SHIFT = 40
"""The order of arrival is the number of the split, shifted by this, and the number of the row in it."""

_DELETED = np.uint64(0x9E3779B97F4A7C15)


def tell_digests(task: Task, table: str, arrived: Rows, order: np.ndarray) -> None:
    """Report how many rows each owner of a split gave, and the sum of their hashes: whatever the order and
    the number of tasks, the same rows add up to the same."""
    owners = task.owners.get(table.lower())
    if owners is None:
        return
    of_row = np.asarray(owners)[order >> SPLIT_SHIFT]
    hashes = arrived.r.view(np.uint64) ^ np.where(arrived.w > 0, np.uint64(0), _DELETED)
    by = np.argsort(of_row, kind="stable")
    starts = np.flatnonzero(np.diff(of_row[by], prepend=-1))
    sums = np.add.reduceat(hashes[by], starts)
    counts = np.diff(np.append(starts, len(by)))
    for start, count, sum_ in zip(starts, counts, sums, strict=True):
        owner = str(of_row[by[start]])
        task.tell(("digest", owner, table, str(arrived.k.min())), (int(count), int(sum_)))


def emit_change(rows: Rows) -> Iterator[pa.RecordBatch]:
    """A change as c0, c1, ..., _w."""
    if len(rows) == 0:
        return
    arrays = [*rows.columns, pa.array(rows.w)]
    yield from sliced(pa.schema([(f"x{i}", a.type) for i, a in enumerate(arrays)]), arrays)


@dataclass(frozen=True)
class UpsertStage(Stage):
    trace: str
    layout: Layout
    name: str
    key: tuple[int, ...]
    bits: int
    emit: bool
    errors: str | None = None

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = _filled(batches)
        arrived, order = _gather(self.layout, filled)
        if len(arrived) == 0:
            return
        tell_digests(task, self.name, arrived, order)
        index = self._last(arrived, order)
        last = arrived.take(index)
        if self.errors is not None:
            texts = pa.chunked_array([batch.column(batch.num_columns - 2) for batch in filled])
            self._keep_errors(task, last, texts.take(pa.array(index)).to_pylist())
        old = task.lookup(self.trace, self.layout, distinct(last.k))
        replaced = old.take(self._same_key(old, last))
        inserted = np.flatnonzero(last.w > 0)
        kept = last if len(inserted) == len(last) else last.take(inserted)
        change = concat(self.layout, [replaced.negated(), kept]).consolidated()
        task.append(self.trace, change, self.bits)
        tell_rows(task, self.trace, change)
        if self.emit:
            yield from emit_change(change)

    def _keep_errors(self, task: Task, last: Rows, texts: Sequence[str | None]) -> None:
        """A key has an error if what arrived last for it is one:  dE = - old E(k) + new E(k)."""
        assert self.errors is not None
        types = (*(self.layout.columns[i] for i in self.key), *(pa.string() for _ in ERROR_FIELDS))
        layout = Layout(types)
        found = task.lookup(self.errors, layout, distinct(last.k))
        of_errors = replace(self, layout=layout, key=tuple(range(len(self.key))))
        keys = Rows(layout, last.k, last.r, self._keys_of(last, layout), last.weights)
        gone = found.take(of_errors._same_key(found, keys))
        new = _error_rows(layout, last, self.key, texts)
        change = concat(layout, [gone.negated(), new]).consolidated()
        task.append(self.errors, change, self.bits)
        tell_rows(task, self.errors, change)

    def _keys_of(self, rows: Rows, layout: Layout) -> tuple[pa.Array, ...]:
        """The columns of the key, and nothing for the others."""
        columns = [rows.columns[i] for i in self.key]
        return (*columns, *(pa.nulls(len(rows), type_) for type_ in layout.columns[len(columns) :]))

    def _last(self, rows: Rows, order: np.ndarray) -> Index:
        """The row that arrived last for each key, sorted by key hash."""
        by = np.argsort(rows.k)
        k = rows.k[by]
        same = k[1:] == k[:-1]
        if not same.any():
            return by
        by = np.lexsort((order, rows.k))
        at = np.flatnonzero(same)
        if not self._equal(rows, by[at], rows, by[at + 1]).all():
            return self._last_exactly(rows, by)
        last: Index = by[np.append(np.flatnonzero(~same), len(by) - 1)]
        return last

    def _last_exactly(self, rows: Rows, by: Index) -> Index:
        """The same where different keys share a hash."""
        columns = [rows.columns[i].take(pa.array(by)).to_pylist() for i in self.key]
        winners: dict[tuple[object, ...], int] = {}
        for position, key in zip(by, zip(*columns, strict=True), strict=True):
            winners[key] = int(position)
        chosen = np.array(list(winners.values()), np.intp)
        sorted_: Index = chosen[np.argsort(rows.k[chosen], kind="stable")]
        return sorted_

    def _same_key(self, old: Rows, last: Rows) -> Index:
        """The old rows whose key arrived again."""
        at = np.searchsorted(last.k, old.k, "left")
        found = self._equal(old, np.arange(len(old)), last, at)
        for i in np.flatnonzero(~found):  # keys that share a hash lie next to each other
            step = at[i] + 1
            while step < len(last) and last.k[step] == old.k[i] and not found[i]:
                found[i] = self._equal(old, np.array([i]), last, np.array([step]))[0]
                step += 1
        return np.flatnonzero(found)

    def _equal(self, a: Rows, i: Index, b: Rows, j: Index) -> np.ndarray:
        equal = np.ones(len(i), np.bool_)
        for column in self.key:
            left, right = take([a.columns[column]], i)[0], take([b.columns[column]], j)[0]
            if pa.types.is_nested(left.type):
                same = np.array(
                    [x == y for x, y in zip(left.to_pylist(), right.to_pylist(), strict=True)], np.bool_
                )
            else:
                same = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
                if pa.types.is_floating(left.type):
                    nan = pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False)
                    same = same | nan.to_numpy(zero_copy_only=False)
            equal &= same
        return equal


@dataclass(frozen=True)
class BagStage(Stage):
    trace: str
    layout: Layout
    name: str
    append_only: bool
    bits: int
    emit: bool

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived, order = _gather(self.layout, _filled(batches))
        if len(arrived) == 0:
            return
        tell_digests(task, self.name, arrived, order)
        change = self._inserted(task, arrived) if self.append_only else self._counted(task, arrived, order)
        task.append(self.trace, change, self.bits)
        tell_rows(task, self.trace, change)
        if self.emit:
            yield from emit_change(change)

    def _inserted(self, task: Task, arrived: Rows) -> Rows:
        """All insertions; a deletion from a table that is only appended to is an error."""
        kept = np.flatnonzero(arrived.w > 0)
        if len(kept) < len(arrived):
            task.tell(("errors", self.name, str(arrived.k[0])), len(arrived) - len(kept))
        return arrived.take(kept).consolidated()

    def _counted(self, task: Task, arrived: Rows, order: np.ndarray) -> Rows:
        """How the count of each row changes if no deletion may take it below zero.

        With s(i) the sum of the first i arrivals and `have` the count before them, the lowest point
        is have + min s; whatever it lies below zero was deleted in vain.
        """
        by = np.lexsort((order, arrived.r, arrived.k))
        k, r, op = arrived.k[by], arrived.r[by], arrived.w[by]
        first = np.ones(len(by), np.bool_)
        first[1:] = (k[1:] != k[:-1]) | (r[1:] != r[:-1])
        starts = np.flatnonzero(first)
        group = np.cumsum(first) - 1
        running = np.cumsum(op)
        running -= (running[starts] - op[starts])[group]
        total = np.add.reduceat(op, starts)
        lowest = np.minimum.reduceat(running, starts)
        rows = arrived.take(by[starts])
        if (lowest < 0).any():
            old = task.lookup(self.trace, self.layout, np.unique(rows.k[lowest < 0]))
            at = find(old, rows.k, rows.r)
            have = np.where(at >= 0, old.w[at] if len(old) else 0, 0)
            missing = np.maximum(0, -(have + lowest)) * (lowest < 0)
            total = total + missing
            if missing.any():
                task.tell(("errors", self.name, str(rows.k[0])), int(missing.sum()))
        changed = np.flatnonzero(total)
        return rows.with_weights(total).take(changed)
