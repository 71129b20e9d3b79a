"""A value that does not fit a column's type, and how to say so."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt

MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises for a value that does not fit a type."""


class BadValueError(Exception):
    """A value that does not fit; `row` is its position in what was converted, `where` the place inside it."""

    def __init__(self, reason: str, value: Any, *, row: int = 0, where: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.value = value
        self.row = row
        self.where = where

    def inside(self, place: str) -> BadValueError:
        """The same, seen from the value that contains it."""
        return BadValueError(self.reason, self.value, row=self.row, where=place + self.where)

    def at(self, row: int) -> BadValueError:
        return BadValueError(self.reason, self.value, row=row, where=self.where)


_SIMPLE_NAMES: dict[pa.DataType, str] = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def is_variant(kind: pa.DataType) -> bool:
    """VARIANT travels as a struct of two binaries, marked on the second."""
    marks = kind.field(1).metadata if pt.is_struct(kind) and kind.num_fields == 2 else None
    return marks is not None and b"variant" in marks


def sql_name(kind: pa.DataType) -> str:
    """The SQL name of an Arrow type, as the user wrote it in the program."""
    if kind in _SIMPLE_NAMES:
        return _SIMPLE_NAMES[kind]
    if pt.is_timestamp(kind):
        return "TIMESTAMP"
    if pt.is_duration(kind):
        return "INTERVAL DAY TO SECOND"
    if pt.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pt.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    if pt.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    if is_variant(kind):
        return "VARIANT"
    if pt.is_struct(kind):
        inner = ", ".join(
            f"{kind.field(i).name}: {sql_name(kind.field(i).type)}" for i in range(kind.num_fields)
        )
        return f"STRUCT<{inner}>"
    return str(kind).upper()


def wrong_kind(value: Any, kind: pa.DataType) -> BadValueError:
    """The refusal of a value whose Python type has nothing to do with the column's type."""
    hint = ""
    if isinstance(value, str) and (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
        hint = "; text is not converted to a number"
    elif isinstance(value, bool) and not pt.is_boolean(kind):
        hint = "; true and false are not numbers"
    return BadValueError(f"is {a_kind(value)}, expected {sql_name(kind)}{hint}", value)


def a_kind(value: Any) -> str:
    """The Python type of a value, with its article."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeio" else f"a {name}"
