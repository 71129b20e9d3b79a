"""What the formats share: columns to batches of a table's rows, and rejecting the records that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.salvage import Salvaged, salvage
from penstock.connectors.interface import INSERT, BadRecord, Reject, with_op
from penstock.connectors.misfit import BadValueError
from penstock.connectors.values import to_array

_SHOWN = 80
"""Longest value shown in a message."""

_KEPT = 10_000
"""Most characters kept of a bad record: it may be the rest of a file."""

Reasons: TypeAlias = dict[int, str]
"""Why rows do not fit, by their position."""


class UnfitError(Exception):
    """The reason why a record cannot be read, where the place is known to the caller."""


@dataclass(frozen=True)
class Target:
    """The table that records are read for."""

    schema: pa.Schema
    key: Sequence[str]
    defaults: Mapping[str, Any]

    def absent(self, column: pa.Field) -> Any:
        """The value of a column that a record does not have."""
        if column.name in self.defaults:
            return self.defaults[column.name]
        if not column.nullable:
            raise BadValueError("is missing; it is NOT NULL and has no default", None)
        return None

    def constant(self, column: pa.Field, length: int) -> Salvaged:
        """A whole column that no record has."""
        try:
            value = self.absent(column)
        except BadValueError as bad:
            return Salvaged(pa.nulls(length, column.type), dict.fromkeys(range(length), bad))
        return Salvaged(pa.repeat(to_array([value], column.type)[0], length), {})


@dataclass(frozen=True)
class Rejections:
    """Tells where in its file a bad record of one split stands."""

    label: str
    unit: str
    """What is counted: lines, rows or records."""
    before: int
    """How many of them the file has before the split."""
    reject: Reject

    def __call__(self, number: int, reason: str, record: str, element: int | None = None) -> None:
        """`number` counts from 0 in the split, `element` from 0 in a list of records."""
        place = self.place(number)
        if element is not None:
            place += f", element {element + 1}"
        kept = record if len(record) <= _KEPT else record[:_KEPT] + "..."
        self.reject(BadRecord(place, reason, kept))

    def place(self, number: int) -> str:
        """Where a record stands, for people."""
        return f"{self.label}, {self.unit} {self.before + number + 1}"


class Record(NamedTuple):
    """One parsed record: where it was, whether it inserts or deletes, and its fields by lower-case name."""

    number: int
    element: int | None
    op: int
    fields: Mapping[str, Any]
    item: Any
    """What the fields were in, to show it."""

    @property
    def place(self) -> tuple[int, int]:
        """Orders records; several rows may have the same."""
        return self.number, -1 if self.element is None else self.element


def check_not_null(column: pa.Field, found: Salvaged) -> Salvaged:
    """Also bad is a NULL in a column that has none."""
    if column.nullable or not found.array.null_count:
        return found
    error = BadValueError("is NULL, and the column is NOT NULL", None)
    nulls = pc.indices_nonzero(pc.is_null(found.array)).to_pylist()
    return Salvaged(found.array, {**dict.fromkeys(nulls, error), **found.bad})


def describe(column: pa.Field, error: Exception) -> str:
    if not isinstance(error, BadValueError):
        return f"column '{column.name}': {error}"
    shown = repr(error.value)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    subject = "" if error.value is None else f"{shown} "
    return f"column '{column.name}{error.where}': {subject}{error.reason}"


def assemble(
    target: Target, op: int | pa.Array, convert: Callable[[pa.Field], Salvaged]
) -> tuple[pa.RecordBatch, Reasons]:
    """The table's columns and `_op`, without the rows that have a bad value, and why those are left out."""
    arrays: list[pa.Array] = []
    reasons: Reasons = {}
    for column in target.schema:
        found = convert(column)
        arrays.append(found.array)
        for row, error in found.bad.items():
            reasons.setdefault(row, describe(column, error))
    batch = with_op(pa.RecordBatch.from_arrays(arrays, schema=target.schema), op)
    if reasons:
        batch = batch.filter(pa.array([row not in reasons for row in range(batch.num_rows)]))
    return batch, reasons


def to_batch(records: Sequence[Record], target: Target, *, text: bool) -> tuple[pa.RecordBatch, Reasons]:
    """The records as one batch; with `text` their values come from a text format.

    Fields the table does not have are ignored: files are often shared with readers that want more of them.
    """
    ops = pa.array([record.op for record in records], pa.int8())
    return assemble(target, ops, lambda column: _column(records, column, target, text=text))


def _column(records: Sequence[Record], column: pa.Field, target: Target, *, text: bool) -> Salvaged:
    name = column.name.lower()
    by_key = bool(target.key) and name not in {key.lower() for key in target.key}
    values: list[Any] = []
    bad: dict[int, Exception] = {}
    for row, record in enumerate(records):
        deletes_by_key = by_key and record.op != INSERT
        value = None if deletes_by_key else record.fields.get(name, target)  # the target itself marks absence
        if value is target:
            try:
                value = target.absent(column)
            except BadValueError as error:
                value, bad[row] = None, error
        elif value is None and not column.nullable and not deletes_by_key:
            bad[row] = BadValueError("is NULL, and the column is NOT NULL", None)
        values.append(value)
    found = salvage(values, column.type, lambda part: to_array(part, column.type, text=text))
    return Salvaged(found.array, {**found.bad, **bad})
