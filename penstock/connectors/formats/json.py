"""JSON: one record per line by default, plain or wrapped in what to do with it.

`update_format` is `raw` (the record itself, inserted), `insert_delete` (`{"insert": {...}}` or
`{"delete": {...}}`) or `weighted` (`{"weight": 2, "data": {...}}`). With `array` each value is a list of
those. With `lines` set to `multiple` a value may span lines, and a file is read as a whole.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.json as pjson
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.formats.record import BadRecordError, Record, Target, check_not_null, to_batch
from penstock.connectors.interface import DELETE, INSERT, MAX_BATCH_ROWS, in_batches, with_op
from penstock.connectors.misfit import MISFITS, BadValueError
from penstock.connectors.text import parse_text

NAME = "json"

_MAX_WEIGHT = 1_000_000


def json_settings(section: Section) -> dict[str, Any]:
    """Checked settings of the format."""
    section.only(["update_format", "array", "lines"])
    return {
        "name": NAME,
        "update_format": section.choice("update_format", ["raw", "insert_delete", "weighted"], "raw"),
        "array": section.get("array", bool, False),
        "lines": section.choice("lines", ["single", "multiple"], "single"),
    }


def parse_json(data: bytes, settings: Mapping[str, Any], target: Target) -> Iterator[pa.RecordBatch]:
    """The records of `data`, which holds whole values."""
    if settings["update_format"] == "raw" and not settings["array"] and settings["lines"] == "single":
        try:
            fast = _fast(data, target)
        except (BadValueError, json.JSONDecodeError, *MISFITS):
            fast = None  # Python's reader decides, and can say which line is wrong
        if fast is not None:
            yield from fast
            return
    records: list[Record] = []
    for record in _records(data, settings, target):
        records.append(record)
        if len(records) == MAX_BATCH_ROWS:
            yield to_batch(records, target)
            records = []
    if records:
        yield to_batch(records, target)


def _fast(data: bytes, target: Target) -> list[pa.RecordBatch] | None:
    """Arrow's reader for flat records; None if it might understand something else than Python's.

    Column names must be spelled in every record as in the first, and types must be what JSON has for them.
    """
    first = json.loads(data.lstrip().partition(b"\n")[0] or b"{}")
    if not isinstance(first, dict) or any(pt.is_nested(field.type) for field in target.schema):
        return None
    spelled = {str(name).lower(): name for name in first}
    if len(spelled) != len(first):
        return None
    wanted = [(spelled[f.name.lower()], f) for f in target.schema if f.name.lower() in spelled]
    read = pjson.read_json(
        pa.BufferReader(data),
        pjson.ReadOptions(use_threads=False, block_size=max(1 << 20, len(data) + 1)),
        pjson.ParseOptions(
            explicit_schema=pa.schema([(name, _read_as(field.type)) for name, field in wanted]),
            unexpected_field_behavior="infer",
        ),
    )
    known = {name for name, _ in wanted}
    declared = {name.lower() for name in target.schema.names}
    if any(name not in known and name.lower() in declared for name in read.column_names):
        return None
    return [_batch(batch, {field.name: name for name, field in wanted}, target) for batch in in_batches(read)]


def _read_as(kind: pa.DataType) -> pa.DataType:
    return kind if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_float64(kind) else pa.string()


def _batch(batch: pa.RecordBatch, spelled: Mapping[str, str], target: Target) -> pa.RecordBatch:
    arrays = []
    for field in target.schema:
        if field.name not in spelled:
            arrays.append(target.constant(field, batch.num_rows))
            continue
        column = batch.column(spelled[field.name])
        if column.null_count and field.name in target.defaults:
            raise ValueError("a NULL and an absent field look the same here, and differ for a default")
        arrays.append(column if column.type == field.type else parse_text(column, field.type))
        check_not_null(field, arrays[-1])
    return with_op(pa.RecordBatch.from_arrays(arrays, schema=target.schema), INSERT)


def _records(data: bytes, settings: Mapping[str, Any], target: Target) -> Iterator[Record]:
    exact = any(_has_decimal(field.type) for field in target.schema)
    decoder = json.JSONDecoder(parse_float=decimal.Decimal if exact else None)
    for line, value in _values(data, decoder, multiple=settings["lines"] == "multiple"):
        items = value if settings["array"] else [value]
        if not isinstance(items, list):
            raise BadRecordError(line, f"expected an array of records, found {_kind(value)}")
        for item in items:
            yield from _unwrapped(line, item, settings["update_format"])


def _has_decimal(kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return any(_has_decimal(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pt.is_decimal(kind))


def _values(data: bytes, decoder: json.JSONDecoder, *, multiple: bool) -> Iterator[tuple[int, Any]]:
    """The values and the lines they start on."""
    if not multiple:
        for line, raw in enumerate(data.split(b"\n")):
            if raw.strip():
                yield line, _decoded(raw, line, decoder)
        return
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadRecordError(data.count(b"\n", 0, error.start), f"is not UTF-8: {error.reason}") from error
    position = line = 0
    while True:
        start = position
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        line += text.count("\n", start, position)
        if position == len(text):
            return
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise BadRecordError(error.lineno - 1, f"is not JSON: {error.msg}") from error
        yield line, value
        line += text.count("\n", position, end)
        position = end


def _decoded(raw: bytes, line: int, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(raw.decode())
    except UnicodeDecodeError as error:
        raise BadRecordError(line, f"is not UTF-8: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise BadRecordError(line, f"is not JSON: {error.msg} at column {error.colno}") from error


def _unwrapped(line: int, item: Any, update_format: str) -> Iterator[Record]:
    if update_format == "raw":
        yield Record(line, INSERT, _fields(line, item))
    elif update_format == "insert_delete":
        if not isinstance(item, dict) or not item or not item.keys() <= {"insert", "delete"}:
            raise BadRecordError(
                line, f'expected {{"insert": {{...}}}} or {{"delete": {{...}}}}, found {_kind(item)}'
            )
        for verb, fields in item.items():
            yield Record(line, INSERT if verb == "insert" else DELETE, _fields(line, fields))
    else:
        weight = item.get("weight") if isinstance(item, dict) else None
        if type(weight) is not int or abs(weight) > _MAX_WEIGHT or "data" not in item:
            raise BadRecordError(line, f'expected {{"weight": n, "data": {{...}}}}, found {_kind(item)}')
        record = Record(line, INSERT if weight > 0 else DELETE, _fields(line, item["data"]))
        yield from [record] * abs(weight)


def _fields(line: int, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRecordError(line, f"expected an object with the columns of the row, found {_kind(value)}")
    fields = {name.lower(): item for name, item in value.items()}
    if len(fields) != len(value):
        raise BadRecordError(line, "has two fields whose names differ only in the case of letters")
    return fields


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "an object with " + (", ".join(f"'{name}'" for name in list(value)[:5]) or "no fields")
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
