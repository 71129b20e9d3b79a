"""Splits of Arrow IPC files that hold a table's columns and `_op`: the rows given to insert and delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.connectors.interface import MAX_BATCH_ROWS, OP_COLUMN, Split
from penstock.errors import ConnectorError

SOURCE = "arrow"


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
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any]
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
