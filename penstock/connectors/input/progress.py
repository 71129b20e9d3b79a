"""How far each file of `file_input` was handed out, and what comes next of it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.connectors.formats import csv, parquet
from penstock.connectors.formats.lines import next_range
from penstock.errors import ConnectorError

SPLIT_BYTES = 4 << 20
"""Largest byte range of one split, so that a large file is read by many tasks."""

_SAMPLE_BYTES = 64 << 10


class File(ABC):
    """How far one file was handed out."""

    def __init__(self, path: str, settings: Mapping[str, Any], *, follow: bool) -> None:
        self.path = path
        self.done = False
        self._settings = settings
        self._follow = follow

    @abstractmethod
    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        """Payload of the next range and about how many rows it has; None if there is nothing now."""


class TextFile(File):
    """CSV and JSON lines, by ranges of bytes."""

    def __init__(self, path: str, settings: Mapping[str, Any], *, follow: bool) -> None:
        super().__init__(path, settings, follow=follow)
        self._offset = 0
        self._record_bytes = 0.0
        self._columns: list[str] | None = None
        self._quotes = settings["name"] == csv.NAME

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self.done:
            return None
        size = os.path.getsize(self.path)
        if size < self._offset:
            raise ConnectorError(
                f"{self.path} shrank from {self._offset} to {size} bytes while it was followed"
            )
        if size == self._offset:
            self.done = not self._follow
            return None
        with open(self.path, "rb") as file:
            if self._offset == 0 and not self._skip_header(file):
                return None
            want = int(min(SPLIT_BYTES, max(max_rows, 1) * self._bytes_per_record(file)))
            found = next_range(file, self._offset, want, quotes=self._quotes, whole=not self._follow)
        if found is None:
            self.done = not self._follow
            return None
        self._offset = found.end
        settings = {**self._settings, "columns": self._columns} if self._quotes else self._settings
        return {"start": found.start, "end": found.end, "format": settings}, max(found.records, 1)

    def _skip_header(self, file: BinaryIO) -> bool:
        """Read past a byte order mark and the header line; False if the header is not there yet."""
        start = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
        if self._settings.get("headers"):
            file.seek(start)
            line = file.readline()
            if not line.endswith(b"\n") and self._follow:
                return False
            self._columns = csv.header_columns(line, self._settings["delimiter"])
            start += len(line)
        self._offset = start
        return True

    def _bytes_per_record(self, file: BinaryIO) -> float:
        if not self._record_bytes:
            file.seek(self._offset)
            sample = file.read(_SAMPLE_BYTES)
            self._record_bytes = max(len(sample) / max(sample.count(b"\n"), 1), 1.0)
        return self._record_bytes


class WholeFile(File):
    """JSON values that span lines: the file is one range."""

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self.done:
            return None
        self.done = True
        with open(self.path, "rb") as file:
            data = file.read()
        return {"start": 0, "end": len(data), "format": self._settings}, max(data.count(b"\n"), 1)


class ParquetFile(File):
    """Parquet, by row groups."""

    def __init__(self, path: str, settings: Mapping[str, Any], *, follow: bool) -> None:
        super().__init__(path, settings, follow=follow)
        self._sizes: list[int] | None = None
        self._group = 0

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self._sizes is None:
            try:
                self._sizes = parquet.row_group_sizes(self.path)
            except pa.ArrowException as error:
                if self._follow:
                    return None  # its footer is written last: the file is not complete yet
                raise ConnectorError(f"{self.path} is not a Parquet file: {error}") from error
        if self._group >= len(self._sizes):
            self.done = True
            return None
        group = self._group
        self._group += 1
        self.done = self._group == len(self._sizes)
        return {"row_groups": [group], "format": self._settings}, self._sizes[group]
