"""CSV (RFC 4180): an empty cell is NULL, a quoted empty cell is the empty string.

Arrays, maps and structs are written as JSON inside a cell. Arrow's reader parses and converts. When it
refuses the text it reads all cells as bytes, which are then converted column by column by the same rules, so
that a bad record does not take the others with it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.formats.record import Reasons, Rejections, Target, assemble, check_not_null
from penstock.connectors.formats.salvage import Salvaged, salvage
from penstock.connectors.interface import INSERT, in_batches
from penstock.connectors.misfit import MISFITS, BadValueError, sql_name
from penstock.connectors.text import parse_text
from penstock.connectors.values import to_array
from penstock.errors import ConnectorError

NAME = "csv"

_BYTES = pa.large_binary()
"""What all cells can be read as, and no column of a table has."""


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


def parse_csv(
    data: bytes, settings: Mapping[str, Any], target: Target, rejections: Rejections
) -> Iterator[pa.RecordBatch]:
    """The records of `data`, which holds whole records and no header."""
    if not data.strip():
        return
    columns, delimiter = settings["columns"] or target.schema.names, settings["delimiter"]
    positions = _positions(columns, target.schema)
    kinds = {at: _read_as(target.schema.field(name).type) for name, at in positions.items()}
    reasons: Reasons = {}
    try:
        read = _read(data, len(columns), delimiter, kinds)
    except pa.ArrowException:
        read = _read_bytes(data, len(columns), delimiter, list(kinds), reasons)
    batches, rows = [], _rows(read.num_rows, reasons)
    start = 0
    for cells in in_batches(read):
        batch, found = assemble(target, INSERT, partial(_column, cells, positions, target))
        reasons |= {rows[start + row]: reason for row, reason in found.items()}
        start += cells.num_rows
        batches.append(batch)
    if reasons:
        records = _records(data, delimiter)
        for row in sorted(reasons):
            line, record = records[row] if row < len(records) else (0, "")
            rejections(line, reasons[row], record)
    yield from (batch for batch in batches if batch.num_rows)


def _positions(columns: Sequence[str], schema: pa.Schema) -> dict[str, int]:
    """Column of the table -> position in the file, whatever the case of its letters."""
    found = {name.strip().lower(): position for position, name in enumerate(columns)}
    return {name: found[name.lower()] for name in schema.names if name.lower() in found}


def _rows(kept: int, dropped: Reasons) -> Sequence[int]:
    """Number of each row that was read, counting those that were not."""
    if not dropped:
        return range(kept)
    return [row for row in range(kept + len(dropped)) if row not in dropped]


def _read_as(kind: pa.DataType) -> pa.DataType:
    simple = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)
    return kind if simple else pa.string()


def _read(
    data: bytes,
    width: int,
    delimiter: str,
    kinds: Mapping[int, pa.DataType],
    dropped: Reasons | None = None,
) -> pa.Table:
    """The wanted columns by their positions; `dropped` takes the rows of another width, otherwise refused."""
    names = [str(position) for position in range(width)]
    types = {str(at): kind for at, kind in kinds.items()}

    def drop(row: pcsv.InvalidRow) -> str:
        if dropped is None:
            return "error"
        dropped[row.number - 1] = f"has {row.actual_columns} cells, expected {row.expected_columns}"
        return "skip"

    return pcsv.read_csv(
        pa.BufferReader(data),
        pcsv.ReadOptions(use_threads=False, column_names=names, block_size=min(len(data) + 1, 1 << 30)),
        pcsv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=b'"' in data,
            invalid_row_handler=None if dropped is None else drop,
        ),
        pcsv.ConvertOptions(column_types=types, include_columns=list(types) or names[:1], **_NULLS),
    )


def _read_bytes(
    data: bytes, width: int, delimiter: str, positions: Sequence[int], dropped: Reasons
) -> pa.Table:
    """The wanted columns as bytes. Arrow shows the rows it drops as text, so all bytes must be some text."""
    kinds = dict.fromkeys(positions or [0], _BYTES)
    try:
        data.decode()
    except UnicodeDecodeError:
        read = _read(data.decode("latin-1").encode(), width, delimiter, kinds, dropped)
        columns = [
            pa.array([cell and cell.decode().encode("latin-1") for cell in column.to_pylist()], _BYTES)
            for column in read.columns
        ]
        return pa.Table.from_arrays(columns, names=read.column_names)
    return _read(data, width, delimiter, kinds, dropped)


_NULLS = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}


def _column(batch: pa.RecordBatch, positions: Mapping[str, int], target: Target, field: pa.Field) -> Salvaged:
    if field.name not in positions:
        return target.constant(field, batch.num_rows)
    column = batch.column(str(positions[field.name]))
    if column.type == field.type:
        return check_not_null(field, Salvaged(column, {}))
    hopeless = _hopeless(column, field.type)
    hopeful = pc.if_else(hopeless, pa.scalar(None, column.type), column)
    found = salvage(hopeful, field.type, lambda part: _cells(part, field.type))
    bad = {row: _misfit(column[row], field.type) for row in pc.indices_nonzero(hopeless).to_pylist()}
    return check_not_null(field, Salvaged(found.array, {**found.bad, **bad}))


_LOOKS = {
    "int": r"^[\s+\-]*(0[xX][0-9a-fA-F]+|[0-9]+)\s*$",
    "float": r"(?i)^(\s*[+-]?(nan|inf).*|[\s+\-0-9.e]*[0-9][\s+\-0-9.e]*)$",
    "bool": r"(?i)^\s*(true|false|0|1)\s*$",
}
"""More than Arrow accepts: what looks otherwise need not be tried cell by cell."""


def _hopeless(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """True where a cell surely cannot be read."""
    if pt.is_boolean(kind):
        look = _LOOKS["bool"]
    elif pt.is_integer(kind) or pt.is_floating(kind):
        look = _LOOKS["int" if pt.is_integer(kind) else "float"]
    else:
        return pa.repeat(False, len(column))
    return pc.fill_null(pc.invert(pc.match_substring_regex(column, look)), False)


def _misfit(cell: pa.Scalar, kind: pa.DataType) -> BadValueError:
    value = cell.as_py()
    shown = value.decode(errors="replace") if isinstance(value, bytes) else value
    return BadValueError(f"cannot be read as {sql_name(kind)}", shown)


def _cells(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cells as `kind`; where there is only one, what is wrong with it."""
    try:
        text = column.cast(pa.string())
        if _read_as(kind) == kind:
            return _simple(text, kind) if kind != pa.string() else text
        if not pt.is_nested(kind):
            return parse_text(text, kind)
        return to_array(
            [None if cell is None else json.loads(cell) for cell in text.to_pylist()], kind, text=True
        )
    except MISFITS as error:
        raise _misfit(column[0], kind) from error


def _simple(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers and booleans, by Arrow's rules for cells."""
    cells = ['"' + cell.replace('"', '""') + '"' for cell in text.drop_null().to_pylist()]
    if not cells:
        return pa.nulls(len(text), kind)
    read = _read("\n".join(cells).encode(), 1, ",", {0: kind})
    converted = read.column(0).combine_chunks()
    return pc.replace_with_mask(pa.nulls(len(text), kind), pc.is_valid(text), converted)


def _records(data: bytes, delimiter: str) -> list[tuple[int, str]]:
    """The records by Python's reader: the lines they start on, and their text."""
    csv.field_size_limit(max(csv.field_size_limit(), len(data)))
    text = data.decode("utf-8", errors="replace")
    lines = text.split("\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    records, line = [], 0
    for cells in reader:
        if cells:
            records.append((line, "\n".join(lines[line : reader.line_num]).rstrip("\r")))
        line = reader.line_num
    return records
