"""Splits of Arrow data that holds a table's columns and `_op`: the rows given to insert and delete.

Many rows are a file of their own. Few are a stream within another file, or are inside the split itself.
Tasks on another host than the one that has the file ask that one for a stream of their rows.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from penstock.connectors.interface import MAX_BATCH_ROWS, OP_COLUMN, Reject, Split, in_batches
from penstock.errors import ConnectorError
from penstock.trace.host import Host

SOURCE = "arrow"
STREAM_SOURCE = "arrow_stream"
INLINE_SOURCE = "inline"
SERVED_SOURCE = "arrow_served"


def arrow_splits(path: str, rows: int, *, split_rows: int = MAX_BATCH_ROWS) -> list[Split]:
    """Splits that cover the `rows` rows of an Arrow IPC file."""
    return [
        Split(
            SOURCE,
            {"path": path, "start": start, "rows": min(split_rows, rows - start)},
            min(split_rows, rows - start),
        )
        for start in range(0, rows, split_rows)
    ]


def read_arrow(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any], _reject: Reject
) -> Iterator[pa.RecordBatch]:
    """Rows `start` to `start + rows` of the file, memory-mapped, so that a split costs only its own rows."""
    names = [*schema.names, OP_COLUMN]
    for batch in _slices(payload["path"], payload["start"], payload["rows"]):
        try:
            yield batch.select(names)
        except KeyError as error:
            raise ConnectorError(f"{payload['path']} lacks a column of its table: {error}") from error


def _slices(path: str, start: int, rows: int) -> Iterator[pa.RecordBatch]:
    end = start + rows
    try:
        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            seen = 0
            for index in range(file.num_record_batches):
                batch = file.get_batch(index)
                first, last = max(start - seen, 0), min(end - seen, batch.num_rows)
                seen += batch.num_rows
                for at in range(first, last, MAX_BATCH_ROWS):
                    yield batch.slice(at, min(MAX_BATCH_ROWS, last - at))
                if seen >= end:
                    return
    except (OSError, pa.ArrowException) as error:
        raise ConnectorError(f"cannot read rows {start} to {end} of {path}: {error}") from error
    raise ConnectorError(f"{path} has {seen} rows, and rows {start} to {end} were expected")


def stream_split(path: str, offset: int, size: int, rows: int) -> Split:
    """The split of an Arrow stream that is a part of a file."""
    return Split(STREAM_SOURCE, {"path": path, "offset": offset, "size": size}, rows)


def read_stream(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any], _reject: Reject
) -> Iterator[pa.RecordBatch]:
    path, offset, size = payload["path"], payload["offset"], payload["size"]
    try:
        yield from _in_stream(_bytes(path, offset, size), schema)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise ConnectorError(f"cannot read {size} bytes at offset {offset} of {path}: {error}") from error


def _bytes(path: str, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def inline_split(rows: pa.Table) -> Split:
    """A split that holds its rows itself: for a few small ones."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data = base64.b64encode(sink.getvalue()).decode()
    return Split(INLINE_SOURCE, {"data": data}, rows.num_rows)


def read_inline(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any], _reject: Reject
) -> Iterator[pa.RecordBatch]:
    yield from _in_stream(base64.b64decode(payload["data"]), schema)


def served(split: Split, url_of: Callable[[str], str | None]) -> Split:
    """The same rows for tasks that may not see the disk where they are; `url_of` a file is None if they do.

    >>> split = stream_split("/journal/1.log", 10, 20, 3)
    >>> served(split, lambda path: f"http://10.0.0.1:40100{path}").payload
    {'url': 'http://10.0.0.1:40100/journal/1.log?offset=10&size=20'}
    """
    if split.source not in (SOURCE, STREAM_SOURCE) or (url := url_of(split.payload["path"])) is None:
        return split
    part = {name: value for name, value in split.payload.items() if name != "path"}
    return Split(SERVED_SOURCE, {"url": f"{url}?{urlencode(part)}"}, split.rows)


@dataclass(frozen=True)
class Part:
    """What of a file is asked for: rows of an Arrow file, or bytes that are an Arrow stream."""

    start: int = 0
    rows: int = 0
    offset: int = 0
    size: int = 0

    def read(self, path: Path) -> bytes:
        """An Arrow stream; `ConnectorError` or `OSError` if the file does not have it."""
        if self.size:
            return _bytes(str(path), self.offset, self.size)
        sink = pa.BufferOutputStream()
        batches = list(_slices(str(path), self.start, self.rows))
        if not batches:
            raise ConnectorError(f"no rows of {path} are asked for")
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data


def read_served(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any], _reject: Reject
) -> Iterator[pa.RecordBatch]:
    """What the coordinator answers, for this task's host is one of its own."""
    try:
        yield from _in_stream(Host.here().asked(payload["url"]), schema)
    except (pa.ArrowException, KeyError) as error:
        raise ConnectorError(f"cannot read what {payload['url']} has: {error}") from error


def _in_stream(data: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as stream:
        yield from in_batches(stream.read_all().select([*schema.names, OP_COLUMN]))
