"""Messages of Kafka to rows of a table, in a Spark task.

With the envelope `upsert` the key of a message is the key of a row and its value is the rest of it; no value
deletes the key. A value that cannot be read takes the row of its key away and stands there as an error, until
the next message with that key.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from penstock.connectors.formats.messages import MessageRejections, Rows, parse_messages
from penstock.connectors.formats.record import Target
from penstock.connectors.interface import (
    DELETE,
    ERROR_COLUMN,
    INSERT,
    OP_COLUMN,
    OP_FIELD,
    BadRecord,
    Reject,
)
from penstock.connectors.values import to_array
from penstock.trace.rows import Index

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_KEPT = 10_000
"""Most characters kept of a value that cannot be read."""


@dataclass(frozen=True)
class Offsets:
    """The offsets of messages, which only bad ones are asked for."""

    messages: Sequence[Message]

    def __getitem__(self, number: int) -> int:
        return int(self.messages[number].offset())


def rows_of(
    messages: Sequence[Message],
    label: str,
    reading: Mapping[str, Any],
    schema: pa.Schema,
    defaults: Mapping[str, Any],
    reject: Reject,
) -> Iterator[pa.RecordBatch]:
    """The rows of messages of one partition, in their order; `label` is the partition, for people."""
    rejections = MessageRejections(label, "message", 0, reject, Offsets(messages))
    if "key_format" in reading:
        yield _upserts(messages, reading, schema, defaults, rejections)
    else:
        yield from _plain(messages, reading, schema, defaults, rejections)


def _plain(
    messages: Sequence[Message],
    reading: Mapping[str, Any],
    schema: pa.Schema,
    defaults: Mapping[str, Any],
    rejections: MessageRejections,
) -> Iterator[pa.RecordBatch]:
    metadata: Mapping[str, str] = reading["metadata"]
    settings = reading["format"]
    values = [message.value() for message in messages]
    if None in values:
        there = [number for number, value in enumerate(values) if value is not None]
        if settings.get("update_format") != "debezium":  # which sends one after each deletion, for compaction
            for number, value in enumerate(values):
                if value is None:
                    rejections(
                        number, "has no value; with 'envelope' set to 'upsert' it would delete its key", ""
                    )
        messages = [messages[number] for number in there]
        values = [values[number] for number in there]
        rejections = replace(rejections, offsets=Offsets(messages))
    own = pa.schema([f for f in schema if f.name not in metadata])
    target = Target(own, reading["key"], defaults)
    for found in parse_messages(values, settings, target, rejections, numbered=bool(metadata)):
        yield _with_metadata(found, messages, metadata, schema) if metadata else found.batch


def _with_metadata(
    rows: Rows, messages: Sequence[Message], metadata: Mapping[str, str], schema: pa.Schema
) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name in metadata:
            take = _METADATA[metadata[field.name]]
            text = field.type == pa.map_(pa.string(), pa.string())
            values = [take(messages[number], text) for number in rows.numbers]
            arrays.append(to_array(values, field.type))
        else:
            arrays.append(rows.batch.column(field.name))
    return pa.RecordBatch.from_arrays([*arrays, rows.batch.column(OP_COLUMN)], schema=schema.append(OP_FIELD))


def _timestamp(message: Message, _text: bool) -> dt.datetime | None:
    kind, milliseconds = message.timestamp()
    if not kind:  # the message has none
        return None
    try:
        return _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:  # any number may be sent as a time
        return None


def _headers(message: Message, text: bool) -> list[tuple[str, Any]]:
    """The last of those with the same name."""
    found = {
        name: value.decode(errors="replace") if text and value is not None else value
        for name, value in message.headers() or ()
    }
    return list(found.items())


_METADATA = {
    "kafka_topic": lambda message, _: message.topic(),
    "kafka_partition": lambda message, _: message.partition(),
    "kafka_offset": lambda message, _: message.offset(),
    "kafka_timestamp": _timestamp,
    "kafka_headers": _headers,
}


def _upserts(
    messages: Sequence[Message],
    reading: Mapping[str, Any],
    schema: pa.Schema,
    defaults: Mapping[str, Any],
    rejections: MessageRejections,
) -> pa.RecordBatch:
    """One row for each message that has a key: the order of those with the same key decides."""
    metadata: Mapping[str, str] = reading["metadata"]
    lowered = {name.lower() for name in reading["key"]}
    of_key = pa.schema([f for f in schema if f.name.lower() in lowered])
    of_value = pa.schema([f for f in schema if f.name.lower() not in lowered and f.name not in metadata])
    keys = _keys(messages, reading["key_format"], of_key, rejections)
    bad: list[BadRecord] = []
    there = [number for number, message in enumerate(messages) if message.value() is not None]
    with_value = [messages[number] for number in there]
    of_values = MessageRejections(rejections.label, "message", 0, bad.append, Offsets(with_value))
    found = list(
        parse_messages(
            [message.value() for message in with_value],
            reading["format"],
            Target(of_value, (), defaults),
            of_values,
            numbered=True,
        )
    )
    values = _joined([Rows(rows.batch, np.asarray(there, np.intp)[rows.numbers]) for rows in found], of_value)
    wrong = {there[number]: what for number, what in of_values.found.items()}
    kept = keys.numbers
    if bad:
        keyless = {rejections.place(int(n)) for n in np.setdiff1d(np.arange(len(messages)), kept)}
        for record in bad:
            if record.position not in keyless:  # that it has no key was told
                rejections.reject(record)
    at = np.full(len(messages), -1, np.int64)
    at[values.numbers] = np.arange(len(values.numbers))
    index = pa.array(at[kept], pa.int64(), mask=at[kept] < 0)
    told = _with_metadata(_nothing(kept), messages, metadata, _only(schema, metadata)) if metadata else None
    arrays = []
    for field in schema:
        if field.name.lower() in lowered:
            arrays.append(keys.batch.column(field.name))
        elif told is not None and field.name in metadata:
            arrays.append(told.column(field.name))
        else:
            arrays.append(values.batch.column(field.name).take(index))
    ops = pa.array(np.where(at[kept] < 0, DELETE, INSERT), pa.int8())
    errors = pa.array([_error(wrong.get(int(number))) for number in kept], pa.string())
    nullable = [field.with_nullable(True) for field in schema]  # where a key is deleted
    return pa.RecordBatch.from_arrays(
        [*arrays, ops, errors], schema=pa.schema([*nullable, OP_FIELD, pa.field(ERROR_COLUMN, pa.string())])
    )


def _nothing(numbers: Index) -> Rows:
    """Rows without columns of their own."""
    ops = pa.array(np.full(len(numbers), INSERT), pa.int8())
    return Rows(pa.RecordBatch.from_arrays([ops], schema=pa.schema([OP_FIELD])), numbers)


def _only(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])


def _error(found: tuple[str, str] | None) -> str | None:
    return None if found is None else json.dumps([found[0], found[1][:_KEPT]])


def _keys(
    messages: Sequence[Message], settings: Mapping[str, Any], schema: pa.Schema, rejections: MessageRejections
) -> Rows:
    """The keys that can be read; a message without one that can is rejected."""
    there = [number for number, message in enumerate(messages) if message.key() is not None]
    if len(there) < len(messages):
        for number, message in enumerate(messages):
            if message.key() is None:
                rejections(number, "has no key, and the key says which row it is", _text(message.value()))
    keyed = [messages[number] for number in there]
    texts = [message.key() for message in keyed]
    if settings["name"] == "json" and len(schema) == 1:  # the value of the only column may stand alone
        name = json.dumps(schema.names[0]).encode()
        texts = [b"{" + name + b":" + text + b"}" if _stands_alone(text) else text for text in texts]
    of_keys = MessageRejections(
        rejections.label, "message", 0, rejections.reject, Offsets(keyed), part="key: "
    )
    target = Target(schema, (), {})
    found = list(parse_messages(texts, settings, target, of_keys, numbered=True))
    joined = _joined(found, schema)
    return Rows(joined.batch, np.asarray(there, np.intp)[joined.numbers])


def _stands_alone(text: bytes) -> bool:
    """Whether it is a JSON value that is no object.

    >>> _stands_alone(b"17"), _stands_alone(b'{"id": 17}'), _stands_alone(b'17, "id": 18')
    (True, False, False)
    """
    if text.lstrip()[:1] == b"{":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _joined(rows: Sequence[Rows], schema: pa.Schema) -> Rows:
    if not rows:
        empty = [pa.array([], field.type) for field in schema.append(OP_FIELD)]
        return Rows(pa.RecordBatch.from_arrays(empty, schema=schema.append(OP_FIELD)), np.empty(0, np.intp))
    if len(rows) == 1:
        return rows[0]
    numbers = np.concatenate([part.numbers for part in rows])
    return Rows(pa.concat_batches([part.batch for part in rows]), numbers)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")
