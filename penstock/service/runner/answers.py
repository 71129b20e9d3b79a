"""The answer to a query in each form that the reference has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.output.encode import to_json

_ROWS = 10_000

Form = tuple[str, Callable[[pa.Table], Iterator[bytes]]]
"""The media type, and how the bytes are made."""


def as_text(table: pa.Table) -> Iterator[bytes]:
    """A table drawn with lines."""
    rows = [["" if v is None else str(v) for v in row.values()] for row in _plain(table)]
    widths = [max([len(name), *(len(row[i]) for row in rows)]) for i, name in enumerate(table.column_names)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+\n"
    yield (line + _drawn(table.column_names, widths) + line).encode()
    for row in rows:
        yield _drawn(row, widths).encode()
    yield line.encode()


def _drawn(cells: list[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |\n"


def as_json(table: pa.Table) -> Iterator[bytes]:
    """One JSON object in each line."""
    for row in _plain(table):
        yield json.dumps(row, separators=(",", ":")).encode() + b"\n"


def as_arrow(table: pa.Table) -> Iterator[bytes]:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_ROWS)
    yield sink.getvalue().to_pybytes()


def as_parquet(table: pa.Table) -> Iterator[bytes]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    yield sink.getvalue().to_pybytes()


def as_hash(table: pa.Table) -> Iterator[bytes]:
    """A hash of the rows, whatever their order."""
    lines = sorted(json.dumps(row, sort_keys=True) for row in _plain(table))
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
        digest.update(b"\n")
    yield digest.hexdigest().upper().encode()


FORMS: dict[str, Form] = {
    "text": ("text/plain", as_text),
    "json": ("application/json", as_json),
    "arrow_ipc": ("application/vnd.apache.arrow.stream", as_arrow),
    "parquet": ("application/parquet", as_parquet),
    "hash": ("text/plain", as_hash),
}


def _plain(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in batch.to_pylist():
            yield to_json(row)
