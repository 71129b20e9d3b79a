"""A part of a batch as bytes: an Arrow file that knows its format version."""

from __future__ import annotations

import base64

import pyarrow as pa
import xxhash

from penstock.errors import DamagedError, StorageError
from penstock.shard.state import Part
from penstock.storage.files import Content

MAX_ROWS = 1 << 20
"""Rows of a part."""

_KEY = b"penstock.format"
_FORMAT = b"shard part/1"
_CHUNK_ROWS = 65536
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def encode(table: pa.Table) -> tuple[bytes, Content]:
    """Changes as bytes, and what they must be when they are read back."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata({_KEY: _FORMAT}), options=_OPTIONS) as writer:
        writer.write_table(table.replace_schema_metadata({_KEY: _FORMAT}), max_chunksize=_CHUNK_ROWS)
    data = sink.getvalue().to_pybytes()
    return data, Content(len(data), xxhash.xxh3_128_hexdigest(data))


def decode(data: bytes, part: Part, where: str) -> pa.Table:
    """The changes of a part; what is not as it was written is refused."""
    found = Content(len(data), xxhash.xxh3_128_hexdigest(data))
    if found != part.content:
        raise DamagedError(f"{where}: {part.key} is damaged: expected {part.content}, found {found}")
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        version = (reader.schema.metadata or {}).get(_KEY, b"none")
        if version != _FORMAT:
            raise StorageError(
                f"{where}: {part.key} has format version {version.decode(errors='replace')}; this Penstock"
                f" reads version {_FORMAT.decode()}. Use the version that wrote it."
            )
        return reader.read_all().replace_schema_metadata(None)


def encode_schema(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
