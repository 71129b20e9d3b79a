"""Columns of Python values to Arrow arrays, exactly.

Columns are converted as a whole; only when that fails is the value looked for that does not fit, so that
large input stays fast and errors still name one value and why it was refused.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.connectors.convert import Convert, converter
from penstock.connectors.misfit import MISFITS, BadValueError
from penstock.connectors.text import is_written_as_text, parse_text


def to_array(values: Sequence[Any], kind: pa.DataType, *, text: bool = False) -> pa.Array:
    """The values as an Arrow array of this type; `BadValueError` names the first that does not fit.

    With `text` the values come from a text format such as JSON, where dates, times, decimals and
    bytes (base64) are written as strings.

    >>> to_array([1, None], pa.int64()).to_pylist()
    [1, None]
    """
    found = set(map(type, values)) - {type(None)}
    direct = _UTC_DIRECT if pt.is_timestamp(kind) and kind.tz else _DIRECT.get(kind.id)
    if direct is not None and found <= direct:
        try:
            return pa.array(values, kind)
        except MISFITS:
            pass  # look for the value below, and say what is wrong with it
    elif text and found == {str} and is_written_as_text(kind):
        try:
            return parse_text(pa.array(values, pa.string()), kind)
        except MISFITS:
            pass
    convert = converter(kind, text=text)
    converted = [_convert_at(row, value, convert) for row, value in enumerate(values)]
    try:
        return pa.array(converted, kind)
    except MISFITS as error:
        raise _locate(converted, values, kind, error) from error


def _convert_at(row: int, value: Any, convert: Convert) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except BadValueError as bad:
        raise bad.at(row) from None


def _locate(
    converted: list[Any], values: Sequence[Any], kind: pa.DataType, error: Exception
) -> BadValueError:
    for row, value in enumerate(converted):
        try:
            pa.array([value], kind)
        except MISFITS as own:
            return BadValueError(str(own), values[row], row=row)
    return BadValueError(str(error), None)


_DIRECT: dict[int, frozenset[type]] = {
    pa.bool_().id: frozenset({bool}),
    pa.int8().id: frozenset({int}),
    pa.int16().id: frozenset({int}),
    pa.int32().id: frozenset({int}),
    pa.int64().id: frozenset({int}),
    pa.float64().id: frozenset({float, int}),
    pa.string().id: frozenset({str}),
    pa.binary().id: frozenset({bytes}),
    pa.date32().id: frozenset({dt.date}),
    pa.decimal128(1).id: frozenset({decimal.Decimal}),
}
"""Exact Python types that Arrow itself converts to a type without any loss or surprise."""

_UTC_DIRECT = frozenset({dt.datetime})
"""The same for TIMESTAMP, where Arrow takes a naive datetime as UTC and converts an aware one to it."""
