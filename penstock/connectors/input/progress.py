"""How far each blob of an input was handed out, and what comes next of it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.connectors.blobs.interface import Blob
from penstock.connectors.formats import avro, csv, json, parquet
from penstock.connectors.formats.lines import next_range
from penstock.errors import ConnectorError


class GoneError(ConnectorError):
    """A blob that was there before is there no longer."""


SPLIT_BYTES = 4 << 20
"""Largest byte range of one split, so that a large file is read by many tasks."""

_SAMPLE_BYTES = 64 << 10


class Progress(ABC):
    """How far one blob was handed out."""

    def __init__(self, blob: Blob, settings: Mapping[str, Any], *, follow: bool) -> None:
        self.blob = blob
        self.done = False
        self._settings = settings
        self._follow = follow
        self._offset = 0
        self._before = 0

    @abstractmethod
    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        """Payload of the next range and about how many rows it has; None if there is nothing now."""

    @property
    def at(self) -> dict[str, Any]:
        """How far it is, as plain JSON.

        `offset`: how many bytes must still be there; `before`: lines, rows or records up to here, which
        messages about the next ones count from.
        """
        return {"offset": self._offset, "before": self._before, "done": self.done}

    def go_to(self, at: Mapping[str, Any]) -> None:
        """Go on where a progress over the same blob was; `ConnectorError` if the blob is shorter."""
        self._offset, self._before, self.done = at["offset"], at["before"], at["done"]
        if not self._offset:
            return
        try:
            size = self.blob.size()
        except FileNotFoundError as error:
            raise GoneError(
                f"{self.blob.label} is gone, and {self._offset} bytes of it were read before; it may have "
                "been deleted, renamed or rotated away. Put it back, or start with an empty storage directory"
            ) from error
        if size < self._offset:
            raise self._shrank(size)

    def _shrank(self, size: int) -> ConnectorError:
        return ConnectorError(
            f"{self.blob.label} shrank from {self._offset} to {size} bytes after it was read; it may have "
            "been truncated, rotated or written anew. Put its content back, and new content into a new file; "
            "to read everything anew, start with an empty storage directory"
        )


def progress_of(blob: Blob, settings: Mapping[str, Any], *, follow: bool) -> Progress:
    """A progress at the start of the blob."""
    kinds: dict[str, type[Progress]] = {parquet.NAME: ParquetProgress, avro.NAME: AvroProgress}
    if settings["name"] == json.NAME and settings["lines"] != "single":
        return WholeProgress(blob, settings, follow=follow)
    return kinds.get(settings["name"], TextProgress)(blob, settings, follow=follow)


class TextProgress(Progress):
    """CSV and JSON lines, by ranges of bytes."""

    def __init__(self, blob: Blob, settings: Mapping[str, Any], *, follow: bool) -> None:
        super().__init__(blob, settings, follow=follow)
        self._record_bytes = 0.0
        self._columns: list[str] | None = None
        self._quotes = settings["name"] == csv.NAME

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self.done:
            return None
        size = self.blob.size()
        if size < self._offset:
            raise self._shrank(size)
        if size == self._offset:
            self.done = not self._follow
            return None
        with self.blob.open() as file:
            if self._offset == 0 and not self._skip_header(file):
                return None
            want = min(SPLIT_BYTES, max(max_rows, 1) * self._bytes_per_record(file))
            found = next_range(
                file,
                self._offset,
                size if self.blob.whole else int(want),
                quotes=self._quotes,
                whole=not self._follow,
            )
        if found is None:
            self.done = not self._follow
            return None
        settings = {**self._settings, "columns": self._columns} if self._quotes else self._settings
        payload = {"start": found.start, "end": found.end, "before": self._before, "format": settings}
        self._offset = found.end
        self._before += found.lines
        return payload, max(found.lines, 1)

    @property
    def at(self) -> dict[str, Any]:
        return {**super().at, "columns": self._columns}

    def go_to(self, at: Mapping[str, Any]) -> None:
        super().go_to(at)
        self._columns = at["columns"]

    def _skip_header(self, file: BinaryIO) -> bool:
        """Read past a byte order mark and the header line; False if the header is not there yet."""
        start = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
        if self._settings.get("headers"):
            line = _first_line(file, start)
            if not line.endswith(b"\n") and self._follow:
                return False
            self._columns = csv.header_columns(line, self._settings["delimiter"])
            self._before = 1
            start += len(line)
        self._offset = start
        return True

    def _bytes_per_record(self, file: BinaryIO) -> float:
        if not self._record_bytes:
            file.seek(self._offset)
            sample = file.read(_SAMPLE_BYTES)
            self._record_bytes = max(len(sample) / max(sample.count(b"\n"), 1), 1.0)
        return self._record_bytes


def _first_line(file: BinaryIO, start: int) -> bytes:
    """By large reads: each may be a request to a server."""
    file.seek(start)
    data = b""
    while b"\n" not in data and (more := file.read(_SAMPLE_BYTES)):
        data += more
    line, end, _ = data.partition(b"\n")
    return line + end


class WholeProgress(Progress):
    """JSON values that span lines: the blob is one range."""

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self.done:
            return None
        with self.blob.open() as file:
            data = file.read()
        self.done = True
        self._offset = len(data)
        payload = {"start": 0, "end": len(data), "before": 0, "format": self._settings}
        return payload, max(data.count(b"\n"), 1)


class ParquetProgress(Progress):
    """Parquet, by row groups."""

    def __init__(self, blob: Blob, settings: Mapping[str, Any], *, follow: bool) -> None:
        super().__init__(blob, settings, follow=follow)
        self._sizes: list[int] | None = None
        self._group = 0

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self.done:
            return None
        if self._sizes is None:
            try:
                with self.blob.open() as file:
                    self._sizes = parquet.row_group_sizes(file)
            except pa.ArrowException as error:
                if self._follow:
                    return None  # its footer is written last: the file is not complete yet
                raise ConnectorError(f"{self.blob.label} is not a Parquet file: {error}") from error
        first = self._group
        last = len(self._sizes) if self.blob.whole else min(first + 1, len(self._sizes))
        self._group = last
        self.done = last == len(self._sizes)
        if first == last:
            return None
        rows = sum(self._sizes[first:last])
        payload = {"row_groups": list(range(first, last)), "before": self._before, "format": self._settings}
        self._offset = self.blob.size()
        self._before += rows
        return payload, rows

    @property
    def at(self) -> dict[str, Any]:
        return {**super().at, "group": self._group}

    def go_to(self, at: Mapping[str, Any]) -> None:
        super().go_to(at)
        self._group = at["group"]


class AvroProgress(Progress):
    """Avro container files, by ranges of whole blocks."""

    def __init__(self, blob: Blob, settings: Mapping[str, Any], *, follow: bool) -> None:
        super().__init__(blob, settings, follow=follow)
        self._header = 0

    def next(self, max_rows: int) -> tuple[dict[str, Any], int] | None:
        if self.done:
            return None
        size = self.blob.size()
        if size < self._offset:
            raise self._shrank(size)
        if self._offset and size == self._offset:
            self.done = not self._follow
            return None
        try:
            found = self._blocks(size, max_rows)
        except avro.NotAvroError as error:
            raise ConnectorError(f"{self.blob.label} is not an Avro container file: {error}") from error
        if found is None:
            if self._follow or self._offset == size:
                self.done = not self._follow
                return None
            raise ConnectorError(
                f"{self.blob.label} ends at byte {size} within its header or a block; it may still be "
                "written. Start again when it is complete, or set 'follow'"
            )
        payload = {"header": self._header, "start": found.start, "end": found.end, "before": self._before}
        self._offset = found.end
        self._before += found.records
        return {**payload, "format": self._settings}, max(found.records, 1)

    def _blocks(self, size: int, max_rows: int) -> avro.Blocks | None:
        with self.blob.open() as file:
            if not self._header:
                try:
                    self._header = avro.header_size(file)
                except EOFError:
                    return None
            self._offset = max(self._offset, self._header)
            if self.blob.whole:
                return avro.next_blocks(file, self._header, self._offset, size, sys.maxsize)
            return avro.next_blocks(file, self._header, self._offset, SPLIT_BYTES, max(max_rows, 1))
