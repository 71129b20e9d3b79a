"""A table as an Arrow file that knows its kind and its format version: `changes/1` in the schema's metadata.

It has no checksum of its own, for whatever names such a file also has its checksum. Files from before there
were versions have none, and are of version 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.errors import DamagedError, StorageError
from penstock.storage.files import Content, Sink, write_file

_KEY = b"penstock.format"
_CHUNK_ROWS = 65536


class TableFile:
    """How tables of one kind are written and read."""

    def __init__(self, kind: str, version: int) -> None:
        self._kind = kind
        self._format = f"{kind}/{version}"

    def write(self, path: Path, table: pa.Table, *, durable: bool) -> Content:
        """Write a table; returns what the file contains."""
        marked = table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: self._format})

        def fill(file: Sink) -> None:
            with pa.ipc.new_file(file, marked.schema) as writer:
                writer.write_table(marked, max_chunksize=_CHUNK_ROWS)

        return write_file(path, fill, durable=durable)

    def read(self, path: Path) -> pa.Table:
        """Read it back as it was given."""
        with self._opened(path) as reader:
            table = reader.read_all()
        metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != _KEY}
        return table.replace_schema_metadata(metadata or None)

    def check(self, path: Path) -> None:
        """Only look whether it can be read."""
        with self._opened(path):
            pass

    @contextmanager
    def _opened(self, path: Path) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """A file of this kind; another format is refused by name."""
        try:
            with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
                metadata = reader.schema.metadata or {}
                found = metadata.get(_KEY, f"{self._kind}/1".encode()).decode(errors="replace")
                if found != self._format:
                    raise StorageError(
                        f"{path} has format version {found}; this Penstock reads version {self._format}. Use"
                        " the version that wrote it."
                    )
                yield reader
        except (OSError, pa.ArrowException) as error:
            raise DamagedError(f"{path} is damaged: {error}") from error
