"""The numbers behind types: what a type can hold, bounds written as text, and decimals from integers."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.connectors.misfit import sql_name
from penstock.errors import ConnectorError

_DAY_MS = 24 * 60 * 60 * 1000
_YEAR_1_DAYS = -719_162
_YEAR_2100_DAYS = 47_482
_YEAR_10000_DAYS = 2_932_897

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIME = re.compile(r"(-)?(?:(\d+) )?(\d+):(\d\d):(\d\d)(?:\.(\d{1,3})\d*)?")


@dataclass(frozen=True)
class Domain:
    """A type as a range of whole numbers, in the unit that `range` and `scale` are given in."""

    least: int
    end: int
    """One above the largest number."""
    default: tuple[int, int]
    store: pa.DataType
    """The integer that Arrow stores."""
    unit: int = 1
    """How much of the stored integer one unit is."""

    def holds(self, number: int) -> bool:
        return self.least <= number < self.end

    @classmethod
    def of(cls, kind: pa.DataType) -> Domain:
        if pt.is_timestamp(kind):
            least, end = _YEAR_1_DAYS * _DAY_MS, _YEAR_10000_DAYS * _DAY_MS
            return cls(least, end, (0, _YEAR_2100_DAYS * _DAY_MS), pa.int64(), 1000)
        if pt.is_date(kind):
            return cls(_YEAR_1_DAYS, _YEAR_10000_DAYS, (0, _YEAR_2100_DAYS), pa.int32())
        if pt.is_duration(kind):
            most = 2**63 // 1000
            return cls(-most, most, (0, _DAY_MS), pa.int64(), 1000)
        if pt.is_integer(kind):
            half = 2 ** (kind.bit_width - 1)
            return cls(-half, half, (-half, half), kind)
        raise ConnectorError(f"datagen cannot make values of type {sql_name(kind)}")

    def array(self, numbers: Any, kind: pa.DataType) -> pa.Array:
        """Numbers of units as values of the type."""
        stored = numbers if self.unit == 1 else numbers * np.int64(self.unit)
        return pa.array(stored.astype(self.store.to_pandas_dtype(), copy=False)).cast(kind)


def temporal(text: str, kind: pa.DataType) -> int:
    """Text as days (dates) or milliseconds (timestamps, intervals); `ValueError` if it is none of these."""
    if pt.is_date(kind):
        return (dt.date.fromisoformat(text) - _EPOCH.date()).days
    if pt.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(milliseconds=1)
    found = _TIME.fullmatch(text) if pt.is_duration(kind) else None
    if found is None:
        raise ValueError(text)
    minus, days, hours, minutes, seconds, fraction = found.groups()
    span = dt.timedelta(
        days=int(days or 0),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        milliseconds=int((fraction or "0").ljust(3, "0")),
    )
    return (-span if minus else span) // dt.timedelta(milliseconds=1)


EXAMPLES = {
    "DATE": '"2024-01-31" or days since 1970',
    "TIMESTAMP": '"2024-01-31T12:00:00Z" or milliseconds since 1970',
    "TIMESTAMP_NTZ": '"2024-01-31T12:00:00" or milliseconds since 1970',
    "INTERVAL DAY TO SECOND": '"12:30:00" or milliseconds',
}
"""How a bound may be written, for messages."""


def decimal_array(unscaled: Any, kind: pa.DataType) -> pa.Array:
    """Unscaled numbers as decimals: the low and the high (sign) half of each 128-bit number."""
    halves = np.empty((len(unscaled), 2), dtype=np.int64)
    if unscaled.dtype == object:
        halves[:, 0] = (unscaled & (2**64 - 1)).astype(np.uint64).view(np.int64)
        halves[:, 1] = (unscaled >> 64).astype(np.int64)
    else:
        halves[:, 0] = unscaled
        halves[:, 1] = unscaled >> 63
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(halves.tobytes())])


def first_of_each(owner: Any, keys: pa.Array) -> Any:
    """Positions of the first of equal keys of each owner, in order."""
    if pt.is_nested(keys.type):  # Arrow does not compare these
        keys = pa.array(map(repr, keys.to_pylist()), pa.string())
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, first = np.unique(owner * np.int64(len(keys) + 1) + codes, return_index=True)
    return np.sort(first)
