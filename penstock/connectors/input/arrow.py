"""Splits of Arrow data that holds a table's columns and `_op`: the rows given to insert and delete.

Many rows are a file of their own. Few are a stream within another file, or are inside the split itself.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.connectors.interface import MAX_BATCH_ROWS, OP_COLUMN, Reject, Split, in_batches
from penstock.errors import ConnectorError

SOURCE = "arrow"
STREAM_SOURCE = "arrow_stream"
INLINE_SOURCE = "inline"


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
    path = payload["path"]
    names = [*schema.names, OP_COLUMN]
    start, end = payload["start"], payload["start"] + payload["rows"]
    try:
        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            seen = 0
            for index in range(file.num_record_batches):
                batch = file.get_batch(index)
                first, last = max(start - seen, 0), min(end - seen, batch.num_rows)
                seen += batch.num_rows
                for at in range(first, last, MAX_BATCH_ROWS):
                    yield batch.slice(at, min(MAX_BATCH_ROWS, last - at)).select(names)
                if seen >= end:
                    return
    except (OSError, pa.ArrowException, KeyError) as error:
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
        with open(path, "rb") as file:
            file.seek(offset)
            yield from _in_stream(file.read(size), schema)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise ConnectorError(f"cannot read {size} bytes at offset {offset} of {path}: {error}") from error


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


def _in_stream(data: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as stream:
        yield from in_batches(stream.read_all().select([*schema.names, OP_COLUMN]))
