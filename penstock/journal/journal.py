"""Append records, read them back, and let go of those that a checkpoint made superfluous.

The journal is a directory of segments. A checkpoint begins a new segment, so letting go is deleting files.
Rows that came through the API lie inside the record of their step if they are few, and otherwise in an Arrow
file named after the record.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from penstock.connectors import Split, arrow_splits, stream_split
from penstock.errors import StorageError
from penstock.failpoints import failpoint
from penstock.journal.record import Kind, Portion, Record, Rows, decode, encode
from penstock.journal.segment import HEADER_SIZE, RECORD_SIZE, Segment, cut, frame, header, read_segment
from penstock.storage.disk import disk
from penstock.storage.files import (
    children,
    explained,
    make_directory,
    remove_garbage,
    remove_if_empty,
    sync_directory,
    write_file,
)
from penstock.storage.table import TableFile

_log = logging.getLogger("penstock")

INLINE_BYTES = 64 << 10
"""Rows of at most this size are kept inside the record."""

ROWS = TableFile("rows", 1)

_NAME = re.compile(r"(\d{12,})(\.log|-\d+\.arrow)(\.\d+\.tmp)?")
"""The names that files of a journal have, written whole or half: record, kind. Any other is not ours."""

_BOUNDARIES = frozenset({Kind.BEGIN, Kind.STEP, Kind.COMMIT, Kind.ROLL_BACK, Kind.SKIP})


@dataclass(frozen=True)
class Entry:
    """A record in its place."""

    number: int
    record: Record
    path: Path
    data: int
    """Where in the file the rows inside the record begin."""

    def splits(self, portion: Portion) -> Sequence[Split]:
        """Where the rows of one of the record's portions can be read."""
        rows = portion.rows
        if rows is None:
            return portion.splits
        if rows.file is not None:
            return arrow_splits(str(self.path.parent / rows.file), rows.count)
        return [stream_split(str(self.path), self.data + rows.offset, rows.size, rows.count)]


class Journal:
    """The journal of one pipeline; `durable` records survive a power cut. One thread at a time."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self._directory = directory
        self._durable = durable
        self._file: FileIO | None = None  # a buffer would keep, and write later, what the disk refused
        self._path = directory
        self._size = 0
        self._broken: str | None = None
        self.next = 0
        """The number of the next record."""
        self.bytes = 0
        """What was written since the last `rotate`, rows beside the journal included."""

    # -- opening --------------------------------------------------------------------------------

    def create(self, first: int = 0) -> None:
        """Begin a journal with record `first` where there is none, or one without records."""
        with _writing(self._directory):
            make_directory(self._directory)
        found = segments_with_records(self._directory)
        if found:
            raise StorageError(
                f"{found[0]} has records, and a new journal was to begin there. Restore the storage"
                " directory from a copy, or start with an empty one."
            )
        self.next = first
        self._begin_segment()

    def open(self, first: int) -> list[Entry]:
        """The records from number `first` on; what follows is appended after them."""
        self.close()
        segments = read_segments(self._directory, first)
        if not segments or not segments[0].first <= first <= _end(segments[-1]):
            has = f"holds records {segments[0].first} to {_end(segments[-1]) - 1}" if segments else "is empty"
            raise StorageError(
                f"{self._directory} {has}, and records from {first} on are needed. Restore the directory from"
                " a copy, or start with an empty storage directory."
            )
        last = segments[-1]
        if last.torn:
            _log.warning(
                "%s: record %d at offset %d is incomplete and was cut off; nothing had followed from it",
                *(last.path, _end(last), last.whole),
            )
            cut(last)
        self.next = _end(last)
        self._path = last.path
        self._size = last.whole
        self._file = FileIO(last.path, "r+")
        self._file.seek(last.whole)
        self._sync()  # what is acted on is there to stay
        entries = [entry for entry in _entries(segments) if entry.number >= first]
        self.bytes = sum(segment.whole for segment in segments) + self._check_files(entries, first)
        return entries

    def _check_files(self, entries: Sequence[Entry], first: int) -> int:
        """Every file that a record names is what it was. Returns the size of all of them.

        Other files of rows from record `first` on were never named, and what has no name of its own yet was
        never finished: a crash left them.
        """
        named = {
            p.rows.file: p.rows
            for e in entries
            for p in e.record.portions
            if p.rows is not None and p.rows.file
        }
        for name, rows in named.items():
            path = self._directory / name
            if not path.exists():
                raise StorageError(
                    f"{path} is missing, and the journal needs its {rows.count} rows. {_RESTORE}"
                )
            size, checksum = path.stat().st_size, _checksum(path)
            if (size, checksum) != (rows.size, rows.checksum):
                raise StorageError(
                    f"{path} is damaged: expected {rows.size} bytes with checksum {rows.checksum:08x}, found"
                    f" {size} bytes with {checksum:08x}. {_RESTORE}"
                )
            ROWS.check(path)
        for path, match in _files(self._directory):
            unnamed = match[2] != ".log" and path.name not in named and int(match[1]) >= first
            if unnamed or match[3]:
                remove_garbage(path)
        return sum(rows.size for rows in named.values())

    # -- writing --------------------------------------------------------------------------------

    def stage(self, rows: pa.Table, place: int, before: int) -> tuple[Rows, bytes]:
        """Rows for the next record: as bytes to be appended to it, `before` bytes in, or as a file."""
        if rows.nbytes <= INLINE_BYTES:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            data = sink.getvalue().to_pybytes()
            return Rows(rows.num_rows, before, len(data)), data
        path = self._directory / f"{self.next:012d}-{place}.arrow"
        with _writing(path):
            size = ROWS.write(path, rows, durable=self._durable).bytes
        self.bytes += size
        failpoint("journal.payload.written")
        return Rows(rows.num_rows, 0, size, path.name, _checksum(path)), b""

    def append(self, record: Record, data: bytes = b"") -> Entry:
        """Write a record; when this returns it is durable."""
        self._refuse_if_broken()
        assert self._file is not None, "the journal is open"
        payload = encode(record, data)
        content = frame(self.next, payload)
        with _writing(self._path):
            try:
                left = memoryview(content)
                while left:
                    left = left[disk().write(self._file.fileno(), left) :]
            except OSError as error:
                self._undo(error)
                raise
        boundary = record.kind in _BOUNDARIES
        if boundary:
            failpoint(f"journal.{record.kind}.written")
        self._sync()
        if boundary:
            failpoint(f"journal.{record.kind}.synced")
        begin = self._size + RECORD_SIZE
        entry = Entry(self.next, record, self._path, begin + len(payload) - len(data))
        self._size += len(content)
        self.bytes += len(content)
        self.next += 1
        return entry

    def _undo(self, error: OSError) -> None:
        """Take back a record that was written in part."""
        assert self._file is not None
        try:
            self._file.truncate(self._size)
            self._file.seek(self._size)
        except OSError:
            self._broken = f"{self._path} could not be written ({error.strerror})"

    def _sync(self) -> None:
        if self._file is None or not self._durable:
            return
        try:
            disk().sync(self._file.fileno())
        except OSError as error:  # what the disk has is unknown from here on
            self._broken = f"{self._path} could not be synced ({error.strerror})"
            raise StorageError(f"{self._broken}. Start the pipeline again.") from error

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise StorageError(
                f"the journal cannot be written any more: {self._broken}. Start the pipeline again."
            )

    # -- letting go -----------------------------------------------------------------------------

    def rotate(self) -> int:
        """Begin a new segment; returns the number of its first record."""
        self._refuse_if_broken()  # the old segment may have a record of that number
        if self._size > HEADER_SIZE:
            self._begin_segment()
        self.bytes = 0
        return self.next

    def trim(self, before: int) -> None:
        """Delete what holds only records before that one."""
        segments = _segments(self._directory)
        with _writing(self._directory):
            for path, following in pairwise(segments):  # in order, so that a crash leaves no gap
                if int(following.stem) <= before:
                    disk().remove(path)
            for path, match in _files(self._directory):
                if match[2] != ".log" and int(match[1]) < before:
                    disk().remove(path)
            if self._durable:
                sync_directory(self._directory)

    def _begin_segment(self) -> None:
        path = self._directory / f"{self.next:012d}.log"
        with _writing(path):
            try:
                write_file(path, lambda file: file.write(header(self.next)), durable=self._durable)
            except OSError:
                self._unname(path)
                raise
        self.close()
        self._path = path
        self._file = FileIO(path, "r+")
        self._size = self._file.seek(0, os.SEEK_END)

    def _unname(self, path: Path) -> None:
        """A segment that failed may have its name already; records that go on in the one before would not
        fit."""
        if not path.exists():
            return
        try:
            disk().remove(path)
            if self._durable:
                sync_directory(self._directory)
        except OSError as error:
            self._broken = f"{path} could not be removed ({error.strerror})"

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_segments(directory: Path, first: int = 0) -> list[Segment]:
    """The segments with the records from `first` on, in order; only the last may be incomplete."""
    old = sorted(directory.glob("*.json"))
    if old:
        raise StorageError(f"{old[0]} is of journal format version 1; use the Penstock that wrote it.")
    paths = _segments(directory)
    while len(paths) > 1 and paths[1].stem <= f"{first:012d}":
        del paths[0]  # a checkpoint made it superfluous, and a crash kept it from being deleted
    segments = [read_segment(path) for path in paths]
    for segment, following in pairwise(segments):
        if segment.torn:
            raise StorageError(
                f"{segment.path} is damaged at offset {segment.whole}, record {_end(segment)}: the record is"
                f" incomplete, and {following.path.name} follows. {_RESTORE}"
            )
        if following.first != _end(segment):
            raise StorageError(
                f"{following.path} begins with record {following.first}, and record {_end(segment)} was"
                f" expected. {_RESTORE}"
            )
    return segments


def first_record(directory: Path) -> int | None:
    """The number of the first record that a journal may have; None if there is no journal."""
    return min((int(path.stem) for path in _segments(directory)), default=None)


def segments_with_records(directory: Path) -> list[Path]:
    """The segments that are not empty, in order."""
    return [path for path in _segments(directory) if path.stat().st_size > HEADER_SIZE]


def remove_journal(directory: Path) -> None:
    """Delete a journal that nobody needs, but for files of names that we do not give."""
    for path, _ in _files(directory):
        remove_garbage(path)
    remove_if_empty(directory)


def read_entries(directory: Path) -> list[Entry]:
    """All records, for those who only look."""
    return _entries(read_segments(directory))


def _entries(segments: Sequence[Segment]) -> list[Entry]:
    entries = []
    for segment in segments:
        for found in segment.frames:
            record, data = decode(found.payload, f"{segment.path}, record {found.number}")
            entries.append(Entry(found.number, record, segment.path, found.offset + data))
    return entries


def _files(directory: Path) -> list[tuple[Path, re.Match[str]]]:
    """The files of a journal, and the parts of their names."""
    return [(path, match) for path in children(directory) if (match := _NAME.fullmatch(path.name))]


def _segments(directory: Path) -> list[Path]:
    return [path for path, match in _files(directory) if match[2] == ".log" and not match[3]]


def _writing(path: Path) -> AbstractContextManager[None]:
    return explained(f"{path} cannot be written", "Make room on the disk.")


def _end(segment: Segment) -> int:
    return segment.first + len(segment.frames)


def _checksum(path: Path) -> int:
    value = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            value = zlib.crc32(data, value)
    return value


_RESTORE = "Restore it from a copy of the storage directory, or start with an empty one."
