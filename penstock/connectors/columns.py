"""Arrow columns to a table's column types: the same rules as for Python values, over whole columns.

Allowed are conversions that keep the meaning (a narrower or wider integer, an integer as a decimal, a
timestamp of another unit); text never becomes a number, a boolean never an integer, and nothing is cut off
silently except nanoseconds, which Spark's timestamps do not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.connectors.convert import converter
from penstock.connectors.misfit import MISFITS, BadValueError, wrong_kind
from penstock.connectors.values import to_array


def cast_column(column: pa.Array, kind: pa.DataType, *, from_pandas: bool = False) -> pa.Array:
    """The column as `kind`; `BadValueError` names the first value that does not fit.

    `from_pandas` accepts what pandas makes of columns with missing values: whole floats as integers,
    timestamps at midnight as dates.
    """
    column = _plain(column)
    if column.type == kind:
        return column
    if pt.is_null(column.type):
        return pa.nulls(len(column), kind)
    cast = _cast_for(column.type, kind, from_pandas=from_pandas)
    if cast is None:
        return _by_value(column, kind)
    try:
        return cast(column)
    except MISFITS as error:
        raise _locate(column, kind, cast, error) from error


def _plain(column: pa.Array) -> pa.Array:
    """Without encodings and 64-bit offsets, which do not matter to a value."""
    kind = column.type
    if pt.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column))
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return column.cast(pa.string())
    if pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return column


def _cast_for(
    source: pa.DataType, kind: pa.DataType, *, from_pandas: bool
) -> Callable[[pa.Array], pa.Array] | None:
    """How to cast whole columns from `source` to `kind`; None if values must be looked at one by one."""
    if pt.is_integer(source) and pt.is_integer(kind):
        return lambda column: column.cast(kind)
    if (pt.is_integer(source) or pt.is_floating(source)) and pt.is_floating(kind):
        return lambda column: _finite(column, column.cast(kind, safe=False))
    if pt.is_floating(source) and pt.is_integer(kind) and from_pandas:
        return lambda column: column.cast(kind)
    if pt.is_decimal(source) and pt.is_decimal128(kind):
        return lambda column: column.cast(kind)
    if pt.is_integer(source) and pt.is_decimal128(kind) and kind.scale <= 18:
        return lambda column: column.cast(pa.decimal128(38, kind.scale)).cast(kind)
    if pt.is_timestamp(source) and pt.is_timestamp(kind) and (source.tz is None or kind.tz is not None):
        return lambda column: pc.floor_temporal(column, unit="microsecond").cast(kind)
    if pt.is_timestamp(source) and source.tz is None and pt.is_date32(kind) and from_pandas:
        return lambda column: _midnight(column, kind)
    if pt.is_date(source) and pt.is_date(kind):
        return lambda column: column.cast(kind)
    if pt.is_duration(source) and pt.is_duration(kind):
        return lambda column: column.cast(kind, safe=False)
    return None


def _finite(before: pa.Array, after: pa.Array) -> pa.Array:
    if (
        pt.is_floating(before.type)
        and pc.any(pc.and_(pc.is_inf(after), pc.invert(pc.is_inf(before)))).as_py()
    ):
        raise ValueError("out of range")
    return after


def _midnight(column: pa.Array, kind: pa.DataType) -> pa.Array:
    dates = column.cast(kind)
    if pc.all(pc.equal(dates.cast(column.type), column)).as_py() is False:
        raise ValueError("has a time of day, expected DATE")
    return dates


def _by_value(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Nested columns, floats as decimals, and every refusal: one value after the other."""
    if not (pt.is_nested(kind) or pt.is_decimal(kind)):
        for row, value in enumerate(itertools.islice(column, len(column))):
            if value.is_valid:
                raise wrong_kind(value.as_py(), kind).at(row)
    return to_array(column.to_pylist(), kind)


def _locate(
    column: pa.Array, kind: pa.DataType, cast: Callable[[pa.Array], pa.Array], error: Exception
) -> BadValueError:
    """The first value that `cast` refuses, found by halving."""
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            cast(column[start:middle])
        except MISFITS:
            end = middle
        else:
            start = middle
    value: Any = column[start].as_py()
    try:
        converter(kind)(value)
    except BadValueError as bad:
        return bad.at(start)
    return BadValueError(str(error), value, row=start)
