"""Text to values of a column's type, for whole columns: what a CSV cell or a JSON string may hold.

Timestamps are ISO 8601, with or without an offset; without one they are UTC. Bytes are base64, as in Spark's
own JSON.
"""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_HAS_OFFSET = r"(Z|[+-]\d\d:?\d\d)$"


def parse_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A string array as `kind`; raises an Arrow error or `ValueError` if any value does not fit.

    >>> parse_text(pa.array(["2024-05-01", None]), pa.date32()).to_pylist()
    [datetime.date(2024, 5, 1), None]
    """
    if pt.is_string(kind):
        return column
    if pt.is_binary(kind):
        return pa.array(
            [None if cell is None else base64.b64decode(cell, validate=True) for cell in column.to_pylist()],
            kind,
        )
    if pt.is_timestamp(kind) and kind.tz is not None:
        return _utc(column, kind)
    return pc.cast(column, kind)


def _utc(column: pa.Array, kind: pa.DataType) -> pa.Array:
    offset = pc.match_substring_regex(column, _HAS_OFFSET)
    if pc.all(offset).as_py() is not False:
        return pc.cast(column, kind)
    naive = pc.cast(pc.if_else(offset, None, column), pa.timestamp(kind.unit))
    aware = pc.cast(pc.if_else(offset, column, None), kind)
    return pc.coalesce(aware, pc.cast(naive, kind))


def is_written_as_text(kind: pa.DataType) -> bool:
    """True for the scalar types that JSON has no value for and writes as a string."""
    return bool(pt.is_decimal(kind) or pt.is_temporal(kind) or pt.is_binary(kind))
