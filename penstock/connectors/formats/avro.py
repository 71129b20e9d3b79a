"""Avro object container files: blocks of records after a header that holds their schema.

Values are converted by the same rules as Python values given to insert. A split is a range of whole blocks,
and the header is read with each.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import fastavro
import pyarrow as pa

from penstock.connectors import schema_registry
from penstock.connectors.config import Section
from penstock.connectors.formats.record import Record, Rejections, Target, to_batch
from penstock.connectors.interface import INSERT, MAX_BATCH_ROWS
from penstock.connectors.schema_registry import SchemaRegistry
from penstock.errors import ConnectorError

NAME = "avro"

_SYNC_BYTES = 16
_BUFFER_BYTES = 1 << 20


class NotAvroError(Exception):
    """The bytes do not have the form of a container file."""


@dataclass(frozen=True)
class Blocks:
    """Bytes `start` to `end` of a file: whole blocks with this many records."""

    start: int
    end: int
    records: int


def avro_settings(section: Section) -> dict[str, Any]:
    """Checked settings of the format; `schema` is what records are read as, if not as they were written."""
    section.only(["schema", "update_format"])
    section.choice("update_format", ["raw"], "raw")
    return {"name": NAME, "schema": _schema(section)}


def message_settings(section: Section) -> dict[str, Any]:
    """The same for messages, which have no header with their schema: it is `schema`, or in a registry."""
    section.only(["schema", "update_format", "skip_schema_id", *schema_registry.FIELDS])
    section.choice("update_format", ["raw"], "raw")
    found = {
        "name": NAME,
        "schema": _schema(section),
        "skip_schema_id": section.get("skip_schema_id", bool, False),
        "registry": {name: section.values[name] for name in schema_registry.FIELDS if name in section.values},
    }
    if SchemaRegistry.of(section) is None and found["schema"] is None:
        raise ConnectorError(f"{section.path}: expected 'schema', or 'registry_urls' to find it there")
    if found["skip_schema_id"] and found["schema"] is None:
        raise ConnectorError(f"{section.path}.skip_schema_id: without ids the field 'schema' has to be there")
    return found


def _schema(section: Section) -> Any:
    text = section.optional("schema", str)
    if text is None:
        return None
    try:
        schema = json.loads(text)
        fastavro.parse_schema(schema)
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ConnectorError(
            f"{section.path}.schema: expected an Avro schema as JSON text: {error}"
        ) from error
    return schema


def header_size(file: BinaryIO) -> int:
    """Where the first block starts; `EOFError` if the header is not complete."""
    buffered = _buffered(file, 0)
    try:
        if _exactly(buffered, 4) != b"Obj\x01":
            raise NotAvroError("it does not start with the four bytes of Avro object container files")
        while count := _long(buffered):
            if count < 0:
                _long(buffered)  # the size of what follows, which is not needed
            for _ in range(abs(count) * 2):
                _exactly(buffered, _long(buffered))
        _exactly(buffered, _SYNC_BYTES)
        return buffered.tell()
    finally:
        buffered.detach()


def next_blocks(file: BinaryIO, header: int, start: int, max_bytes: int, max_rows: int) -> Blocks | None:
    """The next complete blocks, at least one; None if there is none, `NotAvroError` if it is damaged."""
    buffered = _buffered(file, header - _SYNC_BYTES)
    try:
        sync = _exactly(buffered, _SYNC_BYTES)
        buffered.seek(start)
        records, end = 0, start
        while end - start < max_bytes and records < max_rows:
            try:
                count, size = _long(buffered), _long(buffered)
                mark = _after(buffered, size)
            except EOFError:
                break
            if count < 0 or mark != sync:
                raise NotAvroError(f"the block at byte {end} does not end with the marker of the file")
            records, end = records + count, buffered.tell()
        return Blocks(start, end, records) if end > start else None
    finally:
        buffered.detach()


def read_avro(
    header: bytes, data: bytes, settings: Mapping[str, Any], target: Target, rejections: Rejections
) -> Iterator[pa.RecordBatch]:
    """The records of whole blocks."""
    records: list[Record] = []
    for number, item in _items(header, data, settings["schema"], rejections):
        if not isinstance(item, dict):
            rejections(number, "expected an Avro record with the columns of the row", shown(item))
            continue
        records.append(Record(number, None, INSERT, {k.lower(): plain(v) for k, v in item.items()}, item))
        if len(records) == MAX_BATCH_ROWS:
            yield from _converted(records, target, rejections)
            records = []
    yield from _converted(records, target, rejections)


def _converted(records: list[Record], target: Target, rejections: Rejections) -> Iterator[pa.RecordBatch]:
    batch, reasons = to_batch(records, target, text=False)
    for row in sorted(reasons):
        rejections(records[row].number, reasons[row], shown(records[row].item))
    if batch.num_rows:
        yield batch


def _items(header: bytes, data: bytes, schema: Any, rejections: Rejections) -> Iterator[tuple[int, Any]]:
    """The records and their numbers; a block that cannot be decoded is rejected as a whole."""
    try:
        items = list(fastavro.reader(io.BytesIO(header + data), schema))
    except Exception as error:  # damaged bytes make the decoder fail in any way
        if "codec" in str(error):
            raise ConnectorError(f"{rejections.label}: {error}") from error
        items = None  # the blocks are told apart below
    if items is not None:
        yield from enumerate(items)
        return
    number = at = 0
    file = io.BytesIO(data)
    while at < len(data):
        count, size = _long(file), _long(file)
        end = file.seek(size + _SYNC_BYTES, io.SEEK_CUR)
        try:
            items = list(fastavro.reader(io.BytesIO(header + data[at:end]), schema))
        except Exception as error:
            rejections(number, f"its block of {count} records cannot be decoded: {_said(error)}", "")
            items = []
        yield from enumerate(items, number)
        number, at = number + count, end


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def plain(value: Any) -> Any:
    """Values of the logical types that SQL has no type for, as the text people write for them."""
    if isinstance(value, (uuid.UUID, dt.time)):
        return str(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def shown(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False, default=str)


def _buffered(file: BinaryIO, start: int) -> io.BufferedReader:
    """By large reads: each may be a request to a server."""
    buffered: io.BufferedReader = io.BufferedReader(cast(io.RawIOBase, file), _BUFFER_BYTES)
    buffered.seek(start)
    return buffered


def _exactly(file: io.BufferedReader, size: int) -> bytes:
    if size < 0:
        raise NotAvroError(f"it has a negative length before byte {file.tell()}")
    data = file.read(size)
    if len(data) != size:
        raise EOFError
    return data


def _after(file: io.BufferedReader, size: int) -> bytes:
    """The marker after a block of this size."""
    if size < 0:
        raise NotAvroError(f"it has a block of negative length before byte {file.tell()}")
    file.seek(size, io.SEEK_CUR)
    return _exactly(file, _SYNC_BYTES)


def _long(file: BinaryIO | io.BufferedReader) -> int:
    """A zigzag varint."""
    shift = number = 0
    while True:
        byte = file.read(1)
        if not byte:
            raise EOFError
        if shift > 63:
            raise NotAvroError("it has a number of more than 64 bits")
        number |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return (number >> 1) ^ -(number & 1)
