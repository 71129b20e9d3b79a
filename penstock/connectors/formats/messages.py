"""Messages of a log: each is a record of its own, and rows are told by the message they came from.

The messages of a chunk are parsed together, by the same code as the lines of a file; only where that could
not tell which row is whose, and somebody wants to know, one by one.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from json import dumps, loads
from typing import Any, NamedTuple, Protocol

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.formats import avro, csv, json, raw
from penstock.connectors.formats.record import Record, Rejections, Target, to_batch
from penstock.connectors.interface import INSERT
from penstock.connectors.misfit import sql_name
from penstock.connectors.schema_registry import SchemaRegistry
from penstock.errors import ConnectorError, NoSchemaError, UnreachableError
from penstock.trace.rows import Index


class Rows(NamedTuple):
    """Rows with `_op`, and the numbers of the messages they came from."""

    batch: pa.RecordBatch
    numbers: Index


class Numbered(Protocol):
    """Offsets by the numbers of messages."""

    def __getitem__(self, number: int, /) -> int: ...


@dataclass(frozen=True)
class MessageRejections(Rejections):
    """Tells the offset of a message that cannot be read."""

    offsets: Numbered = ()
    part: str = ""
    """Which part of the message: its key, or nothing for its value."""
    found: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Why messages were rejected, by their number, and their text."""

    alone: bool = False
    """Whether it is for one message, whatever is counted in it."""

    def __call__(self, number: int, reason: str, record: str, element: int | None = None) -> None:
        number = 0 if self.alone else number
        self.found.setdefault(self.before + number, (f"{self.part}{reason}", record))
        super().__call__(number, f"{self.part}{reason}", record, element)

    def place(self, number: int) -> str:
        return f"{self.label}, offset {self.offsets[self.before + number]}"

    def starting(self, number: int, *, alone: bool) -> MessageRejections:
        """The same for the messages from this number on."""
        return replace(self, before=number, alone=alone)


def message_settings(where: str, formatted: Any, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The checked settings of a format of messages."""
    if formatted is None and default is not None:
        return dict(default)
    if formatted is None:
        raise ConnectorError(
            f"{where}: the field 'format' is missing; expected one of {', '.join(_SETTINGS)}"
        )
    section = Section.of(f"{where}: format", formatted)
    name = section.choice("name", list(_SETTINGS), "")
    settings = _SETTINGS[name](section.section("config"))
    if settings.get("headers"):
        raise ConnectorError(f"{where}: format.config.headers: a message has no header line; remove it")
    return settings


def parse_messages(
    values: Sequence[bytes],
    settings: Mapping[str, Any],
    target: Target,
    rejections: MessageRejections,
    *,
    numbered: bool,
) -> Iterator[Rows]:
    """The rows of messages; with `numbered` each knows its message."""
    parse = _PARSERS[settings["name"]]
    alone = numbered and _may_have_several(settings)
    for first, part in _parts(values, settings, alone=alone):
        here = rejections.starting(first, alone=len(part) == 1)
        before = set(here.found)
        batches = list(parse(part, settings, target, here))
        rejected = set(here.found) - before
        rows = sum(batch.num_rows for batch in batches)
        if len(part) == 1 or not numbered:
            if numbered and rows > 1 and not _may_have_several(settings):
                here(0, f"has {rows} records, expected one", part[0].decode(errors="replace"))
                continue
            numbers = np.full(rows, first, np.intp)
        else:
            numbers = _kept(first, len(part), rejected)
            assert len(numbers) == rows, "a message is a row, or is rejected"
        start = 0
        for batch in batches:
            yield Rows(batch, numbers[start : start + batch.num_rows])
            start += batch.num_rows


def _may_have_several(settings: Mapping[str, Any]) -> bool:
    """Whether one message may be several rows, or none, without being rejected."""
    if settings["name"] == json.NAME:
        return bool(settings["array"]) or settings["update_format"] != "raw"
    return bool(settings["name"] == raw.NAME and settings["mode"] == "lines")


def _parts(
    values: Sequence[bytes], settings: Mapping[str, Any], *, alone: bool
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Messages that can be parsed together, and the number of the first of them."""
    if not alone and settings["name"] != csv.NAME:
        yield 0, values
        return
    start = 0
    for number, value in enumerate(values):
        # Records that span lines, or several; and quotes, which if one is not closed would go on in the next.
        if alone or any(mark in value.rstrip(b"\r\n") for mark in (b"\n", b"\r", b'"')):
            if start < number:
                yield start, values[start:number]
            yield number, [value]
            start = number + 1
    if start < len(values):
        yield start, values[start:]


def _kept(first: int, messages: int, rejected: set[int]) -> Index:
    """The numbers of the messages that were not rejected."""
    kept = np.ones(messages, np.bool_)
    kept[[number - first for number in rejected]] = False
    return np.flatnonzero(kept) + first


def _json(
    values: Sequence[bytes], settings: Mapping[str, Any], target: Target, rejections: MessageRejections
) -> Iterator[pa.RecordBatch]:
    """A line break between the parts of JSON is white space: without it a message is a line."""
    settings = {**settings, "lines": "single"}
    data = b"\n".join(values)
    if all(values) and data.count(b"\n") == len(values) - 1 and not any(map(bytes.isspace, values)):
        return json.parse_json(data, settings, target, rejections)
    lines = []
    for number, value in enumerate(values):
        if not value.strip():
            rejections(number, "is not JSON: it is empty", "")
            value = b""
        elif b"\n" in value:
            try:
                loads(value)  # refuses one within a string
            except (ValueError, RecursionError) as error:
                rejections(number, f"is not JSON: {error}", value.decode(errors="replace"))
                value = b""
            value = value.replace(b"\n", b" ")
        lines.append(value)
    return json.parse_json(b"\n".join(lines), settings, target, rejections)


def _without_mark(text: bytes) -> bytes:
    """The text behind its byte order mark, which would stand inside of what is parsed together.

    >>> _without_mark(codecs.BOM_UTF8 + b"1,a")
    b'1,a'
    """
    while text.startswith(codecs.BOM_UTF8):
        text = text.removeprefix(codecs.BOM_UTF8)
    return text


def _csv(
    values: Sequence[bytes], settings: Mapping[str, Any], target: Target, rejections: MessageRejections
) -> Iterator[pa.RecordBatch]:
    lines = []
    for number, value in enumerate(values):
        line = _without_mark(value).rstrip(b"\r\n")
        if not line.strip():
            rejections(number, "is not CSV: it is empty", "")
            line = b""
        elif line.count(b'"') % 2:
            rejections(number, "is not CSV: a quote is not closed", line.decode(errors="replace"))
            line = b""
        lines.append(line)
    return csv.parse_csv(b"\n".join(lines), {**settings, "columns": None}, target, rejections)


def _raw(
    values: Sequence[bytes], settings: Mapping[str, Any], target: Target, rejections: MessageRejections
) -> Iterator[pa.RecordBatch]:
    name = (settings["column_name"] or target.schema.names[0]).lower()
    column = next(field.name for field in target.schema if field.name.lower() == name)
    text = pt.is_string(target.schema.field(column).type)
    records = []
    for number, value in enumerate(values):
        items = [value] if settings["mode"] == "blob" else value.splitlines()
        for item in items:
            try:
                found: bytes | str = item.decode() if text else item
            except UnicodeDecodeError as error:
                rejections(number, f"is not UTF-8: {error.reason}", item.decode(errors="replace"))
                continue
            records.append(Record(number, None, INSERT, {name: found}, item))
    yield from _batch(records, target, rejections)


def _avro(
    values: Sequence[bytes], settings: Mapping[str, Any], target: Target, rejections: MessageRejections
) -> Iterator[pa.RecordBatch]:
    registry = _registry(dumps(settings["registry"]))
    own = fastavro.parse_schema(settings["schema"]) if settings["schema"] is not None else None
    schemas: dict[int, Any] = {}
    if registry is not None and not settings["skip_schema_id"]:
        schemas = _schemas(registry, values)
    records = []
    for number, value in enumerate(values):
        body, written = value, own
        assert own is not None or registry is not None, "one of them tells the schema"
        if not settings["skip_schema_id"]:
            id_ = _schema_id(value)
            if id_ is None:
                rejections(
                    number, "does not begin with the id of a schema, a zero and four bytes", _hex(value)
                )
                continue
            body = value[_WIRE_BYTES:]
            if registry is not None:
                written = schemas[id_]
                if isinstance(written, Exception):
                    rejections(number, f"its schema cannot be had: {written}", _hex(value))
                    continue
        try:
            item = fastavro.schemaless_reader(io.BytesIO(body), written or {}, own)
        except Exception as error:  # damaged bytes make the decoder fail in any way
            said = str(error) or type(error).__name__
            rejections(number, f"cannot be decoded as Avro: {said}", _hex(value))
            continue
        if not isinstance(item, dict):
            item = {target.schema.names[0]: item} if len(target.schema) == 1 else item
        if not isinstance(item, dict):
            rejections(number, "expected an Avro record with the columns of the row", avro.shown(item))
            continue
        fields = {name.lower(): avro.plain(inner) for name, inner in item.items()}
        records.append(Record(number, None, INSERT, fields, item))
    yield from _batch(records, target, rejections)


def _schemas(registry: SchemaRegistry, values: Sequence[bytes]) -> dict[int, Any]:
    """The schemas of messages by their ids, or why there is none."""
    found: dict[int, Any] = {}
    waits: Exception | None = None
    for id_ in sorted({id_ for value in values if (id_ := _schema_id(value)) is not None}):
        try:
            found[id_] = fastavro.parse_schema(registry.schema(id_))
        except _NO_SCHEMA as error:
            found[id_] = error
            if registry.may_come(id_):
                waits = error
    if waits is not None:
        raise UnreachableError(f"{waits}; if that lasts, messages that need it are put aside") from waits
    return found


_NO_SCHEMA = (NoSchemaError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType)
"""It is the message's own fault. A registry that does not answer, or refuses to, is none of the message."""


def _batch(
    records: Sequence[Record], target: Target, rejections: MessageRejections
) -> Iterator[pa.RecordBatch]:
    batch, reasons = to_batch(records, target, text=False)
    for row in sorted(reasons):
        rejections(records[row].number, reasons[row], avro.shown(records[row].item))
    if batch.num_rows:
        yield batch


_WIRE_BYTES = 5


def _schema_id(message: bytes) -> int | None:
    """The id of its schema, with which a message in Confluent's wire format begins.

    >>> _schema_id(bytes([0, 0, 0, 1, 2, 77])), _schema_id(b"{}")
    (258, None)
    """
    if len(message) < _WIRE_BYTES or message[0] != 0:
        return None
    return int.from_bytes(message[1:_WIRE_BYTES], "big")


@lru_cache(maxsize=16)
def _registry(settings: str) -> SchemaRegistry | None:
    """The same one for the same settings: it knows the schemas that it was asked for."""
    return SchemaRegistry.of(Section("format.config", loads(settings)))


def _hex(value: bytes) -> str:
    return value.hex()


def check_raw(where: str, settings: Mapping[str, Any], schema: pa.Schema) -> None:
    """Refuse a table that raw messages cannot be rows of."""
    if settings["name"] != raw.NAME:
        return
    name = settings["column_name"]
    if name is None and len(schema) > 1:
        raise ConnectorError(
            f"{where}: the table has the columns {', '.join(schema.names)}; say with 'column_name' which of"
            " them raw messages are"
        )
    found = [f for f in schema if name is None or f.name.lower() == name.lower()]
    if not found:
        raise ConnectorError(f"{where}.column_name: the table has no column '{name}'")
    if not (pt.is_string(found[0].type) or pt.is_binary(found[0].type)):
        raise ConnectorError(
            f"{where}: raw messages are STRING or BINARY, and the column {found[0].name} is"
            f" {sql_name(found[0].type)}"
        )


Parser = Callable[[Sequence[bytes], Mapping[str, Any], Target, MessageRejections], Iterator[pa.RecordBatch]]

_PARSERS: Mapping[str, Parser] = {json.NAME: _json, csv.NAME: _csv, raw.NAME: _raw, avro.NAME: _avro}
_SETTINGS: Mapping[str, Callable[[Section], dict[str, Any]]] = {
    json.NAME: json.json_settings,
    csv.NAME: csv.csv_settings,
    avro.NAME: avro.message_settings,
    raw.NAME: raw.raw_settings,
}
