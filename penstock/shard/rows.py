"""Changes as the parts of a shard hold them: the columns, `_time`, `_weight`, sorted by a hash of the row.

The hash has 128 bits and is of the values alone, so that it is the same in every process: equal rows have
equal hashes, and rows with equal hashes are taken for equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

TIME = "_time"
WEIGHT = "_weight"
_OWN = (TIME, WEIGHT)

Hashes = npt.NDArray[np.uint64]

_SEEDS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_STEP = 0x9FB21C651E98DF25
_NULL = 0xD6E8FEB86659FD93


def with_times(table: pa.Table, time: int) -> pa.Table:
    """The changes of one time: columns and `_weight` come, `_time` is added."""
    times = pa.array(np.full(table.num_rows, time, np.int64))
    return table.add_column(table.schema.get_field_index(WEIGHT), TIME, times)


def schema_with_time(schema: pa.Schema) -> pa.Schema:
    """The schema of a part, from that of the rows."""
    return pa.schema([*schema, pa.field(TIME, pa.int64(), False), pa.field(WEIGHT, pa.int64(), False)])


def column_names(table: pa.Table) -> list[str]:
    """The columns of the rows, without time and weight."""
    return [name for name in table.column_names if name not in _OWN]


def row_hashes(table: pa.Table, names: Sequence[str] | None = None) -> tuple[Hashes, Hashes]:
    """A hash of each row's values, or of some columns, in two halves."""
    found = [np.full(table.num_rows, seed, np.uint64) for seed in _SEEDS]
    for name in column_names(table) if names is None else names:
        halves = _column(table.column(name))
        found = [_mixed(row * np.uint64(_STEP) + half) for row, half in zip(found, halves, strict=True)]
    return found[0], found[1]


def changes_hash(table: pa.Table) -> str:
    """A hash of changes that does not depend on their order, nor on whether equal ones are added up.

    >>> rows = pa.table({"a": [1, 2], "_time": [5, 5], "_weight": [1, -1]})
    >>> changes_hash(rows) == changes_hash(rows.take([1, 0]))
    True
    """
    times = table.column(TIME).to_numpy().view(np.uint64)
    weights = table.column(WEIGHT).to_numpy().view(np.uint64)
    halves = [_mixed(half ^ _mixed(times)) * weights for half in row_hashes(table)]
    return "".join(f"{int(half.sum()):016x}" for half in halves)


def consolidated(table: pa.Table) -> pa.Table:
    """Sorted by hash and time, equal changes added up, those that come to nothing dropped."""
    if table.num_rows == 0:
        return table
    high, low = row_hashes(table)
    times = table.column(TIME).to_numpy()
    order = np.lexsort((times, low, high))
    high, low, times = high[order], low[order], times[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1]) | (times[1:] != times[:-1])
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(table.column(WEIGHT).to_numpy()[order], starts)
    there = sums != 0
    kept = table.take(pa.array(order[starts[there]]))
    at = kept.schema.get_field_index(WEIGHT)
    return kept.set_column(at, kept.schema.field(at), pa.array(sums[there], pa.int64()))


def forwarded(table: pa.Table, since: int) -> pa.Table:
    """With all times before `since` at `since`."""
    at = table.schema.get_field_index(TIME)
    times = np.maximum(table.column(TIME).to_numpy(), since)
    return table.set_column(at, table.schema.field(at), pa.array(times, pa.int64()))


def between(table: pa.Table, lower: int, upper: int) -> pa.Table:
    """The changes from `lower` to before `upper`."""
    times = table.column(TIME)
    return table.filter(pc.and_(pc.greater_equal(times, lower), pc.less(times, upper)))


# -- values -------------------------------------------------------------------------------------


def _column(column: pa.ChunkedArray) -> tuple[Hashes, Hashes]:
    halves = [_array(chunk) for chunk in column.chunks if len(chunk)]
    if not halves:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    high, low = zip(*halves, strict=True)
    return np.concatenate(high), np.concatenate(low)


def _array(array: pa.Array) -> tuple[Hashes, Hashes]:
    type_ = array.type
    if isinstance(array, pa.ExtensionArray):
        return _array(array.storage)
    if pa.types.is_dictionary(type_):
        return _array(array.dictionary_decode())
    if pa.types.is_struct(type_):
        high = low = np.zeros(len(array), np.uint64)
        for field in array.flatten():  # which puts NULL where the struct is
            more = _array(field)
            high, low = _mixed(high + more[0]), _mixed(low * np.uint64(_STEP) + more[1])
    elif pa.types.is_floating(type_):
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # no -0.0
        high, low = _both(np.where(np.isnan(values), np.nan, values).view(np.uint64))  # one NaN
    elif pa.types.is_boolean(type_):
        high, low = _both(array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    elif pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        plain = array if pa.types.is_integer(type_) else array.view(_integer(type_))
        values = plain.fill_null(0).to_numpy(zero_copy_only=False)
        high, low = _both(values.astype(np.int64).view(np.uint64))
    else:
        high, low = _by_value(array)
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        high, low = np.where(nulls, np.uint64(_NULL), high), np.where(nulls, np.uint64(_NULL), low)
    return high, low


def _both(values: Hashes) -> tuple[Hashes, Hashes]:
    return _mixed(values ^ np.uint64(_SEEDS[0])), _mixed(values ^ np.uint64(_SEEDS[1]))


def _by_value(array: pa.Array) -> tuple[Hashes, Hashes]:
    """Texts, decimals, lists and maps."""
    found = b"".join(xxh3_128_digest(_bytes(value)) for value in array.to_pylist())
    halves = np.frombuffer(found, np.uint64).reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else repr(_normal(value)).encode()


def _normal(value: object) -> object:
    """Equal values look the same: there is one zero, and maps, which come as pairs, are in the order of keys.

    >>> _normal([-0.0]), _normal([("b", 1), ("a", {"x": -0.0})])
    ([0.0], [('a', {'x': 0.0}), ('b', 1)])
    """
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _normal(field) for name, field in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_normal, value))
    if isinstance(value, list):
        found = list(map(_normal, value))
        return sorted(found, key=repr) if found and isinstance(found[0], tuple) else found
    return value


def _integer(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _mixed(values: Hashes) -> Hashes:
    """Every bit of a value has a say in every bit of the result (the finisher of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
