"""The numbers behind types: default ranges, bounds written as text, counting, and decimals from integers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.connectors.input.datagen.chance import ALL, Words
from penstock.connectors.misfit import sql_name
from penstock.errors import ConnectorError

_DAY_MS = 24 * 60 * 60 * 1000
_YEAR_2100_MS = 4_102_444_800_000
_YEAR_2100_DAYS = 47_482


def whole_domain(kind: pa.DataType) -> tuple[tuple[int, int], int, pa.DataType]:
    """Default range, size of one unit in the stored number, and type of the stored number."""
    if pt.is_timestamp(kind):
        return (0, _YEAR_2100_MS), 1000, pa.int64()
    if pt.is_date(kind):
        return (0, _YEAR_2100_DAYS), 1, pa.int32()
    if pt.is_duration(kind):
        return (0, _DAY_MS), 1000, pa.int64()
    if pt.is_integer(kind):
        half = 2 ** (kind.bit_width - 1)
        return (-half, half), 1, kind
    raise ConnectorError(f"datagen cannot make values of type {sql_name(kind)}")


def temporal(bound: Any, kind: pa.DataType) -> int:
    """Text of a date or timestamp as days or milliseconds."""
    if pt.is_date(kind):
        return (dt.date.fromisoformat(bound) - dt.date(1970, 1, 1)).days
    if pt.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(bound)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    raise ValueError(bound)


def counting(scale: int, size: int) -> Callable[[Words], Any]:
    """0, scale, 2 x scale ... wrapping around at `size`."""
    wrap = np.uint64(min(size, ALL - 1))
    step = np.uint64(abs(scale))

    def offset(rows: Words) -> Any:
        distance = ((rows * step) % wrap).astype(np.int64)
        return distance if scale >= 0 else np.where(distance == 0, distance, np.int64(size) - distance)

    return offset


def decimal_array(unscaled: Any, kind: pa.DataType) -> pa.Array:
    """Unscaled 64-bit numbers as decimals: the low and the high (sign) half of each 128-bit number."""
    halves = np.empty((len(unscaled), 2), dtype=np.int64)
    halves[:, 0] = unscaled
    halves[:, 1] = unscaled >> 63
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(halves.tobytes())])


def first_of_each(owner: Any, keys: pa.Array) -> Any:
    """Positions of the first of equal keys of each owner, in order."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, first = np.unique(owner * np.int64(len(keys) + 1) + codes, return_index=True)
    return np.sort(first)
