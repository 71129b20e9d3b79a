"""Weighted rows in memory, and the one operation that gives them meaning: consolidation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.trace import weights
from penstock.trace.weights import Weight

Keys = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Span:
    """All keys from one to another, these two included."""

    first: int
    last: int

    @classmethod
    def of(cls, keys: Keys) -> Span:
        """That of sorted keys; there is at least one."""
        return cls(int(keys[0]), int(keys[-1]))

    def meets(self, other: Span) -> bool:
        """
        >>> Span(1, 5).meets(Span(5, 9)), Span(1, 4).meets(Span(5, 9))
        (True, False)
        """
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Layout:
    """The Arrow types of a trace's columns and of its weights."""

    columns: tuple[pa.DataType, ...]
    weights: tuple[pa.DataType, ...] = field(default=(pa.int64(),))

    @classmethod
    def of_file(cls, path: str) -> Layout:
        """The layout of a batch file."""
        with pa.memory_map(path) as file:
            schema = pa.ipc.open_file(file).schema
        kinds = {kind: tuple(f.type for f in schema if f.name.startswith(kind)) for kind in "cw"}
        return cls(kinds["c"], kinds["w"])

    @property
    def schema(self) -> pa.Schema:
        """How a batch file of this trace is laid out."""
        return pa.schema(
            [
                pa.field("_k", pa.int64(), nullable=False),
                pa.field("_r", pa.int64(), nullable=False),
                *(pa.field(f"c{i}", type_) for i, type_ in enumerate(self.columns)),
                *(pa.field(f"w{i}", type_, nullable=False) for i, type_ in enumerate(self.weights)),
            ]
        )


@dataclass(frozen=True)
class Rows:
    """Rows with their key hash, row hash and weights, in no particular order until consolidated."""

    layout: Layout
    k: Keys
    r: Keys
    columns: tuple[pa.Array, ...]
    weights: tuple[Weight, ...]

    def __len__(self) -> int:
        return len(self.k)

    @classmethod
    def empty(cls, layout: Layout) -> Rows:
        none = np.empty(0, np.int64)
        return cls(
            layout,
            none,
            none,
            tuple(pa.array([], type_) for type_ in layout.columns),
            tuple(weights.zeros(0, type_) for type_ in layout.weights),
        )

    @classmethod
    def from_batch(cls, layout: Layout, batch: pa.RecordBatch, start: int = 0) -> Rows:
        """The rows of a record batch laid out as `layout.schema`, from column number `start` on."""
        arrays = batch.columns[start:]
        width = len(layout.columns)
        return cls(
            layout,
            arrays[0].to_numpy(zero_copy_only=True),
            arrays[1].to_numpy(zero_copy_only=True),
            tuple(arrays[2 : 2 + width]),
            tuple(weights.decode(array) for array in arrays[2 + width : 2 + width + len(layout.weights)]),
        )

    @property
    def w(self) -> Weight:
        """The first weight: how often the row is there."""
        return self.weights[0]

    def take(self, index: Index) -> Rows:
        return Rows(
            self.layout,
            self.k[index],
            self.r[index],
            take(self.columns, index),
            tuple(weight[index] for weight in self.weights),
        )

    def slice(self, start: int, stop: int) -> Rows:
        return Rows(
            self.layout,
            self.k[start:stop],
            self.r[start:stop],
            tuple(column.slice(start, stop - start) for column in self.columns),
            tuple(weight[start:stop] for weight in self.weights),
        )

    def with_weights(self, *new: Weight) -> Rows:
        return Rows(self.layout, self.k, self.r, self.columns, new)

    def negated(self) -> Rows:
        return self.with_weights(*(-weight for weight in self.weights))

    def to_batch(self) -> pa.RecordBatch:
        """As a record batch of `layout.schema`."""
        return pa.RecordBatch.from_arrays(
            [
                pa.array(self.k, pa.int64()),
                pa.array(self.r, pa.int64()),
                *self.columns,
                *(
                    weights.encode(weight, type_)
                    for weight, type_ in zip(self.weights, self.layout.weights, strict=True)
                ),
            ],
            schema=self.layout.schema,
        )

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches([self.to_batch()])

    @classmethod
    def from_table(cls, layout: Layout, table: pa.Table) -> Rows:
        """The rows of a table that `to_table` made."""
        return concat(layout, [cls.from_batch(layout, batch) for batch in table.to_batches()])

    def consolidated(self) -> Rows:
        """Sorted by (k, r), equal rows added up, rows that came to nothing dropped.

        >>> layout = Layout((pa.string(),))
        >>> k, r = np.array([7, 3, 7]), np.array([1, 1, 1])
        >>> rows = Rows(layout, k, r, (pa.array(["b", "a", "b"]),), (np.array([1, 1, -1]),))
        >>> rows.consolidated().columns[0].to_pylist()
        ['a']
        """
        if len(self) == 0:
            return self
        order = order_by(self.k, self.r)
        k, r = self.k[order], self.r[order]
        starts = np.flatnonzero(_first(k) | _first(r))
        sums = tuple(weights.total(weight[order], starts) for weight in self.weights)
        there = np.logical_or.reduce([weights.nonzero(weight) for weight in sums])
        kept = starts[there]
        return Rows(
            self.layout,
            k[kept],
            r[kept],
            take(self.columns, order[kept]),
            tuple(weight[there] for weight in sums),
        )


def _first(values: Keys) -> npt.NDArray[np.bool_]:
    """Which values differ from the one before."""
    first = np.empty(len(values), np.bool_)
    first[:1] = True
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def distinct(values: Keys) -> Keys:
    """The different values of a sorted array."""
    return values[_first(values)]


def order_by(k: Keys, r: Keys) -> Index:
    """The order that sorts by (k, r).

    numpy sorts one 64-bit key ten times as fast as it sorts by two: so by k first, and then, where
    several rows share a k, by the number of that k with as many bits of r as fit beside it. If
    those bits do not tell two rows apart, which takes more bad luck than there are rows, it is
    done the slow way.
    """
    order: Index = np.argsort(k)
    first = _first(k[order])
    if first.all():
        return order
    group = np.cumsum(first) - 1
    bits = int(group[-1]).bit_length()
    high = (r[order] ^ np.int64(-(2**63))).view(np.uint64) >> np.uint64(bits)
    if bits:
        high |= group.view(np.uint64) << np.uint64(64 - bits)
    order = order[np.argsort(high)]
    sorted_r = r[order]
    # Sorting within groups left the groups where they were, so `first` still marks their beginnings.
    if (sorted_r[1:] < sorted_r[:-1])[~first[1:]].any():
        return np.lexsort((r, k))
    return order


def concat(layout: Layout, parts: Sequence[Rows]) -> Rows:
    """All rows of all parts."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return Rows.empty(layout)
    if len(parts) == 1:
        return parts[0]
    return Rows(
        layout,
        np.concatenate([part.k for part in parts]),
        np.concatenate([part.r for part in parts]),
        tuple(pa.concat_arrays([part.columns[i] for part in parts]) for i in range(len(layout.columns))),
        tuple(np.concatenate([part.weights[i] for part in parts]) for i in range(len(layout.weights))),
    )


def take(columns: Sequence[pa.Array], index: Index) -> tuple[pa.Array, ...]:
    """The same rows of each column."""
    if not columns:
        return ()
    chosen = pa.array(index, pa.int64())
    return tuple(column.take(chosen) for column in columns)


def find(rows: Rows, k: Keys, r: Keys) -> Index:
    """For each (k, r) the position of that row in consolidated `rows`, or -1."""
    if len(rows) == 0 or len(k) == 0:
        return np.full(len(k), -1, np.intp)
    # Ties on k are rare unless a key has many rows: step through them together, one row at a time.
    position = np.searchsorted(rows.k, k, "left")
    end = np.searchsorted(rows.k, k, "right")
    found = np.full(len(k), -1, np.intp)
    wide = np.flatnonzero(end - position > 8)
    for i in wide:
        at = position[i] + np.searchsorted(rows.r[position[i] : end[i]], r[i])
        if at < end[i] and rows.r[at] == r[i]:
            found[i] = at
    left = np.flatnonzero((end > position) & (end - position <= 8))
    while len(left):
        hit = rows.r[position[left]] == r[left]
        found[left[hit]] = position[left[hit]]
        left = left[~hit]
        position[left] += 1
        left = left[position[left] < end[left]]
    return found
