"""What the text formats share: records that cannot be parsed, and records to batches of a table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.interface import INSERT, with_op
from penstock.connectors.misfit import BadValueError
from penstock.connectors.values import to_array

_SHOWN = 80
"""Longest value shown in a message."""


class BadRecordError(Exception):
    """A record that cannot be parsed; `line` counts from 0 at the start of the text that was parsed."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


@dataclass(frozen=True)
class Target:
    """The table that records are read for."""

    schema: pa.Schema
    key: Sequence[str]
    defaults: Mapping[str, Any]

    def absent(self, field: pa.Field) -> Any:
        """The value of a column that a record does not have."""
        if field.name in self.defaults:
            return self.defaults[field.name]
        if not field.nullable:
            raise BadValueError("is missing; it is NOT NULL and has no default", None)
        return None

    def constant(self, field: pa.Field, length: int) -> pa.Array:
        """A whole column that no record has."""
        return pa.repeat(to_array([self.absent(field)], field.type)[0], length)


@dataclass(frozen=True)
class Record:
    """One parsed record: where it was, whether it inserts or deletes, and its fields by lower-case name."""

    line: int
    op: int
    fields: Mapping[str, Any]


def check_not_null(field: pa.Field, array: pa.Array) -> None:
    if array.null_count and not field.nullable:
        raise BadValueError(
            "is NULL, and the column is NOT NULL", None, row=pc.index(pc.is_null(array), True).as_py()
        )


def describe(field: pa.Field, bad: BadValueError) -> str:
    shown = repr(bad.value)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    subject = "" if bad.value is None else f"{shown} "
    return f"column '{field.name}{bad.where}': {subject}{bad.reason}"


def to_batch(records: Sequence[Record], target: Target) -> pa.RecordBatch:
    """The records as one batch with `_op`; `BadRecordError` for the first that does not fit.

    Fields the table does not have are ignored: files are often shared with readers that want more of them.
    """
    arrays: list[pa.Array] = []
    problems: list[tuple[int, str]] = []
    for field in target.schema:
        try:
            arrays.append(_column(records, field, target))
        except BadValueError as bad:
            problems.append((records[bad.row].line, describe(field, bad)))
    if problems:
        raise BadRecordError(*min(problems))
    batch = pa.RecordBatch.from_arrays(arrays, schema=target.schema)
    return with_op(batch, pa.array([record.op for record in records], pa.int8()))


def _column(records: Sequence[Record], field: pa.Field, target: Target) -> pa.Array:
    name = field.name.lower()
    by_key = bool(target.key) and name not in {column.lower() for column in target.key}
    values: list[Any] = []
    for row, record in enumerate(records):
        deletes_by_key = by_key and record.op != INSERT
        value = None if deletes_by_key else record.fields.get(name, target)  # the target itself marks absence
        if value is target:
            try:
                value = target.absent(field)
            except BadValueError as bad:
                raise bad.at(row) from None
        elif value is None and not field.nullable and not deletes_by_key:
            raise BadValueError("is NULL, and the column is NOT NULL", None, row=row)
        values.append(value)
    return to_array(values, field.type, text=True)
