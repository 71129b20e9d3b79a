"""CSV (RFC 4180): an empty cell is NULL, a quoted empty cell is the empty string.

Arrays, maps and structs are written as JSON inside a cell. The fast path is Arrow's own CSV reader; when it
refuses the text, the record is looked for with Python's, so that the error can name a line.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.formats.record import BadRecordError, Target, check_not_null, describe
from penstock.connectors.interface import INSERT, in_batches, with_op
from penstock.connectors.misfit import MISFITS, BadValueError, sql_name
from penstock.connectors.text import parse_text
from penstock.connectors.values import to_array
from penstock.errors import ConnectorError

NAME = "csv"


def csv_settings(section: Section) -> dict[str, Any]:
    """Checked settings of the format; `headers`: the first line of each file names its columns."""
    section.only(["delimiter", "headers"])
    delimiter = section.get("delimiter", str, ",")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ConnectorError(f"{section.path}.delimiter: expected one ASCII character, found {delimiter!r}")
    return {"name": NAME, "delimiter": delimiter, "headers": section.get("headers", bool, False)}


def header_columns(line: bytes, delimiter: str) -> list[str]:
    """The column names in a header line."""
    text = line.decode("utf-8-sig", errors="replace")
    return next(csv.reader([text], delimiter=delimiter), [])


class _BadCellError(Exception):
    """A cell that was read and does not fit; `record` counts the records from 0."""

    def __init__(self, record: int, reason: str) -> None:
        super().__init__(reason)
        self.record = record
        self.reason = reason


def parse_csv(data: bytes, settings: Mapping[str, Any], target: Target) -> Iterator[pa.RecordBatch]:
    """The records of `data`, which holds whole records and no header."""
    columns, delimiter = settings["columns"] or target.schema.names, settings["delimiter"]
    try:
        yield from _fast(data, columns, delimiter, target)
    except _BadCellError as bad:
        raise BadRecordError(_line_of(data, delimiter, bad.record), bad.reason) from bad
    except MISFITS as error:
        raise _locate(data, columns, delimiter, target, error) from error


def _positions(columns: Sequence[str], schema: pa.Schema) -> dict[str, int]:
    """Column of the table -> position in the file, whatever the case of its letters."""
    found = {name.strip().lower(): position for position, name in enumerate(columns)}
    return {name: found[name.lower()] for name in schema.names if name.lower() in found}


def _read_as(kind: pa.DataType) -> pa.DataType:
    simple = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)
    return kind if simple else pa.string()


def _fast(data: bytes, columns: Sequence[str], delimiter: str, target: Target) -> Iterator[pa.RecordBatch]:
    if not data.strip():
        return
    positions = _positions(columns, target.schema)
    names = [str(position) for position in range(len(columns))]
    types = {str(at): _read_as(target.schema.field(name).type) for name, at in positions.items()}
    read = pcsv.read_csv(
        pa.BufferReader(data),
        pcsv.ReadOptions(use_threads=False, column_names=names),
        pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
        pcsv.ConvertOptions(
            column_types=types,
            include_columns=list(types) or names[:1],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    start = 0
    for batch in in_batches(read):
        arrays = []
        for field in target.schema:
            try:
                arrays.append(_column(batch, positions.get(field.name), field, target))
            except BadValueError as bad:
                raise _BadCellError(start + bad.row, describe(field, bad)) from bad
        start += batch.num_rows
        yield with_op(pa.RecordBatch.from_arrays(arrays, schema=target.schema), INSERT)


def _column(batch: pa.RecordBatch, position: int | None, field: pa.Field, target: Target) -> pa.Array:
    if position is None:
        return target.constant(field, batch.num_rows)
    column = batch.column(str(position))
    array = column if column.type == field.type else _cells(column, field.type)
    check_not_null(field, array)
    return array


def _cells(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pt.is_nested(kind):
        return parse_text(column, kind)
    return to_array(
        [None if cell is None else json.loads(cell) for cell in column.to_pylist()], kind, text=True
    )


def _records(data: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The records by Python's reader, with the lines they start on."""
    text = data.decode("utf-8", errors="surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    line = 0
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num
    except csv.Error as error:
        raise BadRecordError(line, str(error)) from error


def _line_of(data: bytes, delimiter: str, record: int) -> int:
    return next((line for line, _ in itertools.islice(_records(data, delimiter), record, None)), 0)


def _locate(
    data: bytes, columns: Sequence[str], delimiter: str, target: Target, error: Exception
) -> BadRecordError:
    """The first record that cannot be read, and why."""
    positions = _positions(columns, target.schema)
    for line, cells in _records(data, delimiter):
        reason = _refusal(cells, columns, positions, target)
        if reason is not None:
            return BadRecordError(line, reason)
    return BadRecordError(0, str(error))


def _refusal(
    cells: Sequence[str], columns: Sequence[str], positions: Mapping[str, int], target: Target
) -> str | None:
    if len(cells) != len(columns):
        return f"has {len(cells)} cells, expected {len(columns)}"
    for name, position in positions.items():
        field, cell = target.schema.field(name), cells[position]
        if cell == "":
            continue  # NULL, or an empty string
        try:
            _cells(pa.array([cell.strip() if _read_as(field.type) == field.type else cell]), field.type)
        except (BadValueError, *MISFITS):
            return f"column '{name}': {cell!r} cannot be read as {sql_name(field.type)}"
    return None
