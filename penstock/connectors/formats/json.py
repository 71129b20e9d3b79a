"""JSON: one record per line by default, plain or wrapped in what to do with it.

`update_format` is `raw` (the record itself, inserted), `insert_delete` (`{"insert": {...}}` or
`{"delete": {...}}`), `weighted` (`{"weight": 2, "data": {...}}`) or `debezium` (`{"payload": {"op": "u",
"before": {...}, "after": {...}}}`). With `array` each value is a list of those. With `lines` set to
`multiple` a value may span lines, and a file is read as a whole; `any` is the same, and fast where no value
does. `json_flavor` is `pandas` if dates and times are milliseconds since 1970.
"""

from __future__ import annotations

import codecs
import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json as pjson
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.formats.record import Record, Rejections, Target, UnfitError, to_batch
from penstock.connectors.interface import DELETE, INSERT, MAX_BATCH_ROWS, in_batches, with_op
from penstock.connectors.misfit import MISFITS, BadValueError
from penstock.connectors.text import parse_text
from penstock.connectors.values import to_array

NAME = "json"

_MAX_WEIGHT = 1_000_000
_EPOCH = dt.datetime(1970, 1, 1)
_UPDATE_FORMATS = ["raw", "insert_delete", "weighted", "debezium"]


def json_settings(section: Section) -> dict[str, Any]:
    """Checked settings of the format."""
    section.only(["update_format", "array", "lines", "json_flavor"])
    settings = {
        "name": NAME,
        "update_format": section.choice("update_format", _UPDATE_FORMATS, "raw"),
        "array": section.get("array", bool, False),
        "lines": section.choice("lines", ["single", "multiple", "any"], "single"),
    }
    flavor = section.choice("json_flavor", ["default", "pandas"], "default")
    # A setting that is not used is left out, so that what earlier versions journaled stays the same.
    return settings if flavor == "default" else {**settings, "json_flavor": flavor}


def parse_json(
    data: bytes, settings: Mapping[str, Any], target: Target, rejections: Rejections
) -> Iterator[pa.RecordBatch]:
    """The records of `data`, which holds whole values."""
    plain = not settings["array"] and settings["lines"] == "single"
    if not settings["array"] and settings["lines"] != "multiple" and "json_flavor" not in settings:
        try:
            fast = _fast(data, settings, target)
        except (BadValueError, RecursionError, *MISFITS):
            fast = None  # Python's reader decides, and can say which line is wrong
        if fast is not None:
            yield from fast
            return
    lines = data.split(b"\n") if plain else None

    def text_of(record: Record) -> str:
        if lines is not None:
            return lines[record.number].decode(errors="replace").rstrip("\r")
        return _dumped(record.item)

    for records, problems in _in_parts(_records(data, settings, target)):
        batch, reasons = to_batch(records, target, text=True)
        if reasons:
            bad = {
                records[row].place: Problem.of(records[row], reasons[row], text_of)
                for row in sorted(reasons, reverse=True)
            }
            problems = [*problems, *bad.values()]
            batch, _ = to_batch([record for record in records if record.place not in bad], target, text=True)
        for problem in sorted(problems, key=lambda problem: problem.place):
            rejections(problem.number, problem.reason, problem.text, problem.element)
        yield from in_batches(pa.Table.from_batches([batch]))


@dataclass(frozen=True)
class Problem:
    """A record that does not fit, and its text."""

    number: int
    element: int | None
    reason: str
    text: str

    @classmethod
    def of(cls, record: Record, reason: str, text_of: Callable[[Record], str]) -> Problem:
        return cls(record.number, record.element, reason, text_of(record))

    @property
    def place(self) -> tuple[int, int]:
        return self.number, -1 if self.element is None else self.element


def _in_parts(found: Iterator[list[Record] | Problem]) -> Iterator[tuple[list[Record], list[Problem]]]:
    """Records for one batch each; what stands in one place, a delete and an insert, stays together."""
    records: list[Record] = []
    problems: list[Problem] = []
    for entry in found:
        if isinstance(entry, Problem):
            problems.append(entry)
        else:
            records.extend(entry)
        if len(records) >= MAX_BATCH_ROWS:
            yield records, problems
            records, problems = [], []
    if records or problems:
        yield records, problems


def _fast(data: bytes, settings: Mapping[str, Any], target: Target) -> list[pa.RecordBatch] | None:
    """Arrow's reader for flat records that are inserted; None if it might understand something else than
    Python's.

    Column names must be spelled in every record as in the first, and types must be what JSON has for them.
    """
    update_format = settings["update_format"]
    if update_format not in ("raw", "insert_delete") or data.startswith(codecs.BOM_UTF8):
        return None
    data.decode()  # Arrow's reader does not look
    first = json.loads(data.lstrip().partition(b"\n")[0] or b"{}")
    if update_format == "insert_delete":
        if not isinstance(first, dict) or first.keys() != {"insert"}:
            return None
        first = first["insert"]
    if not isinstance(first, dict) or any(pt.is_nested(field.type) for field in target.schema):
        return None
    spelled = {str(name).lower(): name for name in first}
    if len(spelled) != len(first):
        return None
    wanted = [(spelled[f.name.lower()], f) for f in target.schema if f.name.lower() in spelled]
    columns = pa.schema([(name, _read_as(field.type)) for name, field in wanted])
    read = _inserted(data, columns) if update_format == "insert_delete" else _read(data, columns)
    if read is None or (settings["lines"] == "single" and read.num_rows != _count_lines(data)):
        return None
    known = {name for name, _ in wanted}
    declared = {name.lower() for name in target.schema.names}
    if any(name not in known and name.lower() in declared for name in read.column_names):
        return None
    return [_batch(batch, {field.name: name for name, field in wanted}, target) for batch in in_batches(read)]


def _count_lines(data: bytes) -> int:
    """Those that are not blank; none if one of them is not an object by itself, as far as can be seen."""
    breaks = data.count(b"\n")
    if data.count(b"}\n{") == breaks and data[:1] == b"{" and data[-1:] == b"}":
        return breaks + 1  # nearly always, and a tenth of the work
    lines = [line for line in (line.strip() for line in data.split(b"\n")) if line]
    return len(lines) if all(line[:1] == b"{" and line[-1:] == b"}" for line in lines) else -1


def _read(data: bytes, columns: pa.Schema) -> pa.Table:
    return pjson.read_json(
        pa.BufferReader(data),
        pjson.ReadOptions(use_threads=False, block_size=max(1 << 20, len(data) + 1)),
        pjson.ParseOptions(explicit_schema=columns, unexpected_field_behavior="infer"),
    )


def _inserted(data: bytes, columns: pa.Schema) -> pa.Table | None:
    """What is wrapped in `insert`; None if anything else is."""
    wrapped = _read(data, pa.schema([("insert", pa.struct(list(columns)))]))
    inserts = wrapped.column("insert").combine_chunks()
    if wrapped.column_names != ["insert"] or inserts.null_count or not inserts.type.num_fields:
        return None
    return pa.Table.from_arrays(inserts.flatten(), names=[field.name for field in inserts.type])


def _read_as(kind: pa.DataType) -> pa.DataType:
    return kind if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_floating(kind) else pa.string()


def _batch(batch: pa.RecordBatch, spelled: Mapping[str, str], target: Target) -> pa.RecordBatch:
    arrays = []
    for field in target.schema:
        if field.name not in spelled:
            arrays.append(pa.repeat(to_array([target.absent(field)], field.type)[0], batch.num_rows))
            continue
        column = batch.column(spelled[field.name])
        if column.null_count and (field.name in target.defaults or not field.nullable):
            raise ValueError("a NULL and an absent field look the same here, and differ for Python's reader")
        arrays.append(column if column.type == field.type else parse_text(column, field.type))
    return with_op(pa.RecordBatch.from_arrays(arrays, schema=target.schema), INSERT)


def _records(data: bytes, settings: Mapping[str, Any], target: Target) -> Iterator[list[Record] | Problem]:
    """What each element of the text asks for, or what is wrong with it."""
    exact = any(_has_decimal(field.type) for field in target.schema)
    decoder = json.JSONDecoder(parse_float=decimal.Decimal if exact else None)
    pandas = settings.get("json_flavor") == "pandas"
    numbers = {f.name.lower(): f.type for f in target.schema if pandas and pt.is_temporal(f.type)}
    values = _line_values if settings["lines"] == "single" else _spanning_values
    for found in values(data, decoder):
        if isinstance(found, Problem):
            yield found
            continue
        line, value = found
        if not settings["array"]:
            yield _unwrapped(line, None, value, settings["update_format"], numbers)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield _unwrapped(line, index, item, settings["update_format"], numbers)
        else:
            yield Problem(line, None, f"expected an array of records, found {_kind(value)}", _dumped(value))


def _has_decimal(kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return any(_has_decimal(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pt.is_decimal(kind))


def _line_values(data: bytes, decoder: json.JSONDecoder) -> Iterator[tuple[int, Any] | Problem]:
    """The values and the lines they stand on."""
    for line, raw in enumerate(data.split(b"\n")):
        if raw.strip():
            try:
                value = _decoded(raw, decoder)
            except UnfitError as error:
                yield Problem(line, None, str(error), raw.decode(errors="replace").rstrip("\r"))
            else:
                yield line, value


def _spanning_values(data: bytes, decoder: json.JSONDecoder) -> Iterator[tuple[int, Any] | Problem]:
    """The values and the lines they start on.

    What follows a value that is not JSON is lost with it: nobody can tell where the next one starts.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start)
        yield Problem(line, None, f"is not UTF-8: {error.reason}", data.decode(errors="replace"))
        return
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
        except _NOT_JSON as error:
            at = error.lineno - 1 if isinstance(error, json.JSONDecodeError) else line
            yield Problem(at, None, f"is not JSON: {_message(error)}", text[position:])
            return
        yield line, value
        line += text.count("\n", position, end)
        position = end


_NOT_JSON = (ValueError, RecursionError, decimal.InvalidOperation)
"""What the decoder raises: also for numbers with too many digits, and for lists in lists in lists."""


def _message(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error) or type(error).__name__


def _decoded(raw: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(raw.decode())
    except UnicodeDecodeError as error:
        raise UnfitError(f"is not UTF-8: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise UnfitError(f"is not JSON: {error.msg} at column {error.colno}") from error
    except _NOT_JSON as error:
        raise UnfitError(f"is not JSON: {_message(error)}") from error


def _unwrapped(
    line: int, element: int | None, item: Any, update_format: str, numbers: Mapping[str, pa.DataType]
) -> list[Record] | Problem:
    try:
        return [
            Record(line, element, op, _dated(fields, numbers), item)
            for op, fields in _changes(item, update_format)
        ]
    except UnfitError as error:
        return Problem(line, element, str(error), _dumped(item))


def _dated(fields: Mapping[str, Any], numbers: Mapping[str, pa.DataType]) -> Mapping[str, Any]:
    """Milliseconds since 1970 as the texts of dates and times."""
    found = {name: fields[name] for name in numbers if type(fields.get(name)) is int}
    if not found:
        return fields
    dates = {name: _moment(value, date=pt.is_date(numbers[name])) for name, value in found.items()}
    return {**fields, **dates}


def _moment(milliseconds: int, *, date: bool) -> str:
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise UnfitError(f"has a date that is out of range: {milliseconds}") from error
    return moment.date().isoformat() if date else moment.isoformat()


def _changes(item: Any, update_format: str) -> list[tuple[int, Mapping[str, Any]]]:
    if update_format == "raw":
        return [(INSERT, _fields(item))]
    if update_format == "insert_delete":
        if not isinstance(item, dict) or not item or not item.keys() <= {"insert", "delete"}:
            raise UnfitError(f'expected {{"insert": {{...}}}} or {{"delete": {{...}}}}, found {_kind(item)}')
        return [(INSERT if verb == "insert" else DELETE, _fields(value)) for verb, value in item.items()]
    if update_format == "debezium":
        return _of_debezium(item)
    weight = item.get("weight") if isinstance(item, dict) else None
    if type(weight) is not int or abs(weight) > _MAX_WEIGHT or "data" not in item:
        raise UnfitError(f'expected {{"weight": n, "data": {{...}}}}, found {_kind(item)}')
    return [(INSERT if weight > 0 else DELETE, _fields(item["data"]))] * abs(weight)


def _of_debezium(item: Any) -> list[tuple[int, Mapping[str, Any]]]:
    payload = item.get("payload") if isinstance(item, dict) else None
    operation = payload.get("op") if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or operation not in ("c", "r", "u", "d"):
        raise UnfitError(f'expected {{"payload": {{"op": "c", "r", "u" or "d", ...}}}}, found {_kind(item)}')
    if operation == "d":
        return [(DELETE, _fields(payload.get("before")))]
    inserted = (INSERT, _fields(payload.get("after")))
    if operation == "u" and payload.get("before") is not None:  # not every database logs it
        return [(DELETE, _fields(payload["before"])), inserted]
    return [inserted]


def _fields(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnfitError(f"expected an object with the columns of the row, found {_kind(value)}")
    if "".join(value).islower():
        return value
    fields = {name.lower(): item for name, item in value.items()}
    if len(fields) != len(value):
        raise UnfitError("has two fields whose names differ only in the case of letters")
    return fields


def _dumped(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False, default=str)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "an object with " + (", ".join(f"'{name}'" for name in list(value)[:5]) or "no fields")
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
