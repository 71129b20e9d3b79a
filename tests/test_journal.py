"""What was written is read back as it was, or refused by name: never something else, and never less."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.checkpoint.model import Saved
from penstock.cli import app
from penstock.connectors import OP_COLUMN, Split, read_split
from penstock.controller.skip import skip_transaction
from penstock.controller.storage import Storage
from penstock.errors import StateError, StorageError
from penstock.journal.journal import INLINE_BYTES, Entry, Journal, read_entries
from penstock.journal.record import API, Digest, Kind, Portion, Record, Rows, decode, encode
from penstock.journal.segment import HEADER_SIZE, RECORD_SIZE, frame, header, read_segment
from penstock.storage.disk import Disk, use_disk

AT = datetime(2026, 5, 17, 12, 30, 15, 123456, UTC)
SPLIT = Split("csv", {"path": "/in/orders.csv", "start": 0, "end": 512}, 20)

# One of each kind, with everything in it that it can have.
RECORDS = [
    Record(Kind.BEGIN, 1, AT),
    Record(
        Kind.STEP,
        1,
        AT,
        (
            Portion(
                "orders_in", "orders", (SPLIT, Split("csv", {"path": "ü"})), position={"byte": [1, None]}
            ),
            Portion("prices_in", "prices", (SPLIT,), position=0),
        ),
    ),
    Record(
        Kind.COMMIT,
        1,
        AT,
        digests={"orders_in": Digest(40, (1 << 64) - 1), API: Digest(0, 0)},
        note={"delivered": {"out": 0}},
    ),
    Record(Kind.CONNECTOR, 2, AT, note={"connector": "orders_in", "paused": True}),
    Record(Kind.STEP, 2, AT, (Portion(API, "orders", rows=Rows(3, 0, 5)),)),
    Record(Kind.SKIP, 2, AT, note={"reason": "division by zero"}),
    Record(Kind.BEGIN, 3, AT),
    Record(Kind.ROLL_BACK, 3, AT),
    Record(Kind.JOIN, 4, AT, note={"output": "out", "transaction": 3}),
]


def _written(directory: Path, segments: Sequence[Sequence[Record]]) -> list[Record]:
    """A journal of these records, one segment after the other."""
    journal = Journal(directory, durable=False)
    journal.create()
    for index, records in enumerate(segments):
        if index:
            journal.rotate()
        for record in records:
            journal.append(record)
    journal.close()
    return [record for records in segments for record in records]


def _records(entries: Sequence[Entry]) -> list[Record]:
    return [entry.record for entry in entries]


@contextmanager
def _opened(directory: Path, first: int = 0) -> Iterator[tuple[Journal, list[Entry]]]:
    journal = Journal(directory, durable=False)
    try:
        yield journal, journal.open(first)
    finally:
        journal.close()


def _read(directory: Path, first: int = 0) -> list[Record]:
    with _opened(directory, first) as (_, entries):
        return _records(entries)


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# -- round trip ---------------------------------------------------------------------------------


def test_there_is_a_record_of_each_kind() -> None:
    assert {record.kind for record in RECORDS} == set(Kind)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.kind)
def test_a_record_is_read_as_it_was_written(record: Record, tmp_path: Path) -> None:
    assert decode(encode(record, b"data"), "")[0] == record
    _written(tmp_path, [[record]])
    assert _read(tmp_path) == [record]
    assert _records(read_entries(tmp_path)) == [record]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(st.text(), JSON, max_size=3)
PORTIONS = st.builds(
    Portion,
    st.text(),
    st.text(),
    st.lists(st.builds(Split, st.text(), PAYLOADS, st.none() | st.integers(0)), max_size=2).map(tuple),
    st.none() | st.builds(Rows, st.integers(0), st.integers(0), st.integers(0), st.none() | st.text()),
    JSON,
)
ANY_RECORD = st.builds(
    Record,
    st.sampled_from(Kind),
    st.integers(0),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(PORTIONS, max_size=2).map(tuple),
    st.dictionaries(st.text(), st.builds(Digest, st.integers(0), st.integers(0, (1 << 64) - 1)), max_size=2),
    PAYLOADS,
)


@given(record=ANY_RECORD, data=st.binary(max_size=9))
def test_any_record_is_read_as_it_was_written(record: Record, data: bytes) -> None:
    payload = encode(record, data)
    found, offset = decode(payload, "")
    assert found == record
    assert payload[offset:] == data


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"kind": "merge", "transaction": 1, "at": AT.isoformat()},
        {"kind": "step", "transaction": 1, "at": "yesterday"},
        {"kind": "step", "transaction": 1, "at": AT.isoformat(), "portions": ["orders"]},
        {"kind": "step", "transaction": 1, "at": AT.isoformat(), "portions": [{"colour": 1}]},
        {"kind": "commit", "transaction": 1, "at": AT.isoformat(), "digests": [1]},
        {"kind": "commit", "transaction": 1, "at": AT.isoformat(), "digests": {"a": [1, "x"]}},
    ],
)
def test_a_record_of_a_newer_version_is_refused_by_name(content: Any, tmp_path: Path) -> None:
    _written(tmp_path, [RECORDS[:1]])
    text = json.dumps(content).encode()
    (log,) = _logs(tmp_path)
    log.write_bytes(log.read_bytes() + frame(1, struct.pack("<I", len(text)) + text))
    with pytest.raises(StorageError, match=r"000\.log, record 1 cannot be understood.*newer Penstock"):
        _read(tmp_path)


# -- rows ---------------------------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def _table(rows: int, first: int = 0) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{i}" for i in ids],
            OP_COLUMN: pa.array([1] * rows, pa.int8()),
        }
    )


LARGE = 10_000


def _append_rows(journal: Journal, transaction: int, *tables: pa.Table) -> Entry:
    portions, data = [], b""
    for place, table in enumerate(tables):
        rows, more = journal.stage(table, place, len(data))
        portions.append(Portion(API, f"t{place}", rows=rows))
        data += more
    return journal.append(Record(Kind.STEP, transaction, AT, tuple(portions)), data)


def _rows_of(entry: Entry) -> list[list[dict[str, Any]]]:
    """What is read where the entry says that its rows are."""
    return [
        [
            row
            for split in entry.splits(portion)
            for batch in read_split(split, SCHEMA, {}, lambda bad: pytest.fail(str(bad)))
            for row in batch.to_pylist()
        ]
        for portion in entry.record.portions
    ]


@pytest.mark.parametrize("sizes", [[1], [0, 3], [3, 5, 7], [LARGE], [2, LARGE, 3, LARGE]])
def test_rows_are_read_as_they_were_given(sizes: list[int], tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.create()
    given_ = [[_table(n, first=100 * k) for n in sizes] for k in range(3)]
    written = [_append_rows(journal, k, *tables) for k, tables in enumerate(given_)]
    journal.close()
    with _opened(tmp_path) as (_, entries):
        assert entries == written, "the entry that was appended is the one that is read"
        for entry, tables in zip(entries, given_, strict=True):
            assert _rows_of(entry) == [table.to_pylist() for table in tables]
    assert len(list(tmp_path.glob("*.arrow"))) == 3 * sizes.count(LARGE)


def test_a_table_at_the_limit_is_inside_the_record_and_a_larger_one_beside_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.create()
    count = INLINE_BYTES // 8
    inside, _ = journal.stage(pa.table({"id": pa.array(range(count), pa.int64())}), 0, 0)
    beside, data = journal.stage(pa.table({"id": pa.array(range(count + 1), pa.int64())}), 1, 0)
    journal.close()
    assert (inside.file, beside.file, data) == (None, "000000000000-1.arrow", b"")


# -- cut and flipped ----------------------------------------------------------------------------


@pytest.fixture
def three_segments(tmp_path: Path) -> tuple[Path, list[Record]]:
    directory = tmp_path / "journal"
    return directory, _written(directory, [RECORDS[:3], RECORDS[3:6], RECORDS[6:]])


def _ends(path: Path) -> list[int]:
    """Where the segment's header and each of its records end."""
    segment = read_segment(path)
    return [HEADER_SIZE, *(f.offset + len(f.payload) + 4 for f in segment.frames)]


def test_a_journal_that_was_cut_anywhere_has_its_first_records(
    three_segments: tuple[Path, list[Record]], caplog: pytest.LogCaptureFixture
) -> None:
    directory, records = three_segments
    log = _logs(directory)[-1]
    content, ends = log.read_bytes(), _ends(log)
    for size in range(ends[-3], len(content)):
        log.write_bytes(content[:size])
        caplog.clear()
        whole = sum(end <= size for end in ends) - 1
        assert _read(directory) == records[: 6 + whole]
        assert log.stat().st_size == ends[whole], "what was incomplete is gone"
        assert ("is incomplete and was cut off" in caplog.text) == (size not in ends)
        if size not in ends:
            assert f"{log}: record {6 + whole} at offset {ends[whole]} " in caplog.text


def test_a_journal_whose_end_was_not_written_has_its_first_records_or_is_refused(
    three_segments: tuple[Path, list[Record]], caplog: pytest.LogCaptureFixture
) -> None:
    """A file system may make a file longer before it has the bytes, which are zeros then."""
    directory, records = three_segments
    log = _logs(directory)[-1]
    content, ends = log.read_bytes(), _ends(log)
    for size in range(ends[-2], len(content)):
        log.write_bytes(content[:size].ljust(len(content), b"\0"))
        caplog.clear()
        if size > len(content) - 4:  # within the end mark, all content is there: it may have been whole
            with pytest.raises(StorageError, match=f"{log} is damaged at offset {ends[-2]}, record 8"):
                _read(directory)
            continue
        assert _read(directory) == records[:-1], size
        assert log.stat().st_size == ends[-2]
        assert "was cut off; nothing had followed from it" in caplog.text


@pytest.mark.parametrize("zeros", [1, RECORD_SIZE - 1, RECORD_SIZE, RECORD_SIZE + 1, 4096])
def test_zeros_at_the_end_are_cut_off_and_said_so(
    zeros: int, three_segments: tuple[Path, list[Record]], caplog: pytest.LogCaptureFixture
) -> None:
    directory, records = three_segments
    log = _logs(directory)[-1]
    before = log.read_bytes()
    log.write_bytes(before + bytes(zeros))
    with caplog.at_level(logging.WARNING, logger="penstock"):
        assert _read(directory) == records
    assert f"record 9 at offset {len(before)} is incomplete and was cut off" in caplog.text
    assert log.read_bytes() == before


def test_those_who_only_look_cut_nothing_off(three_segments: tuple[Path, list[Record]]) -> None:
    directory, records = three_segments
    log = _logs(directory)[-1]
    log.write_bytes(log.read_bytes()[:-1])
    before = _contents(directory)
    assert _records(read_entries(directory)) == records[:-1]
    assert _contents(directory) == before


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_flipped_byte_is_refused_wherever_it_is(
    segment: int, three_segments: tuple[Path, list[Record]]
) -> None:
    directory, records = three_segments
    log = _logs(directory)[segment]
    content, ends = log.read_bytes(), _ends(log)
    first = [0, 3, 6][segment]
    for at in range(len(content)):
        for flip in (1 << at % 8, 0xFF, content[at]):  # one bit, all bits, and to zero
            if flip == 0:
                continue
            damaged = bytearray(content)
            damaged[at] ^= flip
            log.write_bytes(damaged)
            with pytest.raises(StorageError) as caught:
                _read(directory)
            text = str(caught.value)
            number = sum(end <= at for end in ends) - 1
            place = "0" if at < HEADER_SIZE else f"{ends[number]}, record {first + number}:"
            assert text.startswith(f"{log} is damaged at offset {place}"), (at, flip, text)
            assert "Restore it from a copy" in text
            assert log.read_bytes() == bytes(damaged), "what is refused is left as it is"
    log.write_bytes(content)
    assert _read(directory) == records


@given(data=st.data())
def test_bytes_that_are_no_segment_are_refused_or_are_a_prefix(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever happens to a run of bytes, no record is read that was not written."""
    path = tmp_path_factory.mktemp("segment") / "000000000000.log"
    payloads = [encode(record) for record in RECORDS]
    content = bytearray(header(0) + b"".join(frame(n, payload) for n, payload in enumerate(payloads)))
    at = data.draw(st.integers(0, len(content) - 1))
    junk = data.draw(st.binary(max_size=64))
    content[at : at + data.draw(st.integers(0, 64))] = junk
    path.write_bytes(content)
    try:
        found = [f.payload for f in read_segment(path).frames]
    except StorageError as error:
        refusal = str(error)
    else:
        assert found == payloads[: len(found)]
        return
    assert str(path) in refusal


def test_an_incomplete_record_in_the_middle_is_refused(three_segments: tuple[Path, list[Record]]) -> None:
    directory, _ = three_segments
    log = _logs(directory)[0]
    offset = _ends(log)[2]
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(
        StorageError,
        match=rf"{log} is damaged at offset {offset}, record 2: .*incomplete, and 000000000003\.log follows",
    ):
        _read(directory)


def test_a_header_that_is_cut_is_refused(tmp_path: Path) -> None:
    _written(tmp_path, [RECORDS])
    (log,) = _logs(tmp_path)
    content = log.read_bytes()
    for size in range(HEADER_SIZE):
        log.write_bytes(content[:size])
        with pytest.raises(StorageError, match=rf"{log} is damaged at offset {size}: its header ends there"):
            _read(tmp_path)


def test_a_missing_segment_is_refused(three_segments: tuple[Path, list[Record]]) -> None:
    directory, records = three_segments
    first, middle, last = _logs(directory)
    middle.unlink()
    with pytest.raises(StorageError, match=rf"{last} begins with record 6, and record 3 was expected"):
        _read(directory)
    assert _read(directory, 6) == records[6:], "what a checkpoint made superfluous is not needed"
    last.unlink()
    with pytest.raises(StorageError, match="holds records 0 to 2, and records from 6 on are needed"):
        _read(directory, 6)
    first.unlink()
    with pytest.raises(StorageError, match="is empty, and records from 0 on are needed"):
        _read(directory)


def test_a_missing_first_segment_is_refused(three_segments: tuple[Path, list[Record]]) -> None:
    directory, records = three_segments
    _logs(directory)[0].unlink()
    with pytest.raises(StorageError, match="holds records 3 to 8, and records from 0 on are needed"):
        _read(directory)
    assert _read(directory, 3) == records[3:]


def test_segments_that_changed_places_are_refused(three_segments: tuple[Path, list[Record]]) -> None:
    directory, _ = three_segments
    first, middle, _ = _logs(directory)
    one, other = first.read_bytes(), middle.read_bytes()
    first.write_bytes(other)
    middle.write_bytes(one)
    with pytest.raises(StorageError, match=rf"{middle} begins with record 0, and record 6 was expected"):
        _read(directory)


def test_another_version_is_refused_by_name(tmp_path: Path) -> None:
    _written(tmp_path, [RECORDS])
    (log,) = _logs(tmp_path)
    head = struct.pack("<8sIQ", b"PENSTOCK", 3, 0)
    log.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + log.read_bytes()[HEADER_SIZE:])
    with pytest.raises(StorageError, match=rf"{log} has format version 3; this Penstock reads version 2"):
        _read(tmp_path)


def test_a_journal_of_version_1_is_refused_by_name(tmp_path: Path) -> None:
    old = tmp_path / "000000000001.json"
    old.write_text('{"transaction": 1}')
    for read in (_read, read_entries):
        with pytest.raises(StorageError, match=rf"{old} is of journal format version 1"):
            read(tmp_path)
    assert old.exists()


def test_a_segment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "000000000000.log").mkdir()
    with pytest.raises(StorageError, match=r"000\.log cannot be read: Is a directory"):
        _read(tmp_path)


def test_reading_takes_time_in_proportion(tmp_path: Path) -> None:
    """A client may keep a transaction open for many steps."""

    def seconds(records: int) -> float:
        path = tmp_path / f"{records:012d}.log"
        payload = bytes([7]) * 400
        path.write_bytes(header(0) + b"".join(frame(n, payload) for n in range(records)))
        begin = time.process_time()
        assert len(read_segment(path).frames) == records
        return time.process_time() - begin

    seconds(100)
    few, many = (min(seconds(n) for _ in range(2)) for n in (1_000, 10_000))
    assert many < 40 * few, "10 times the records; quadratic would be 100 times"


# -- rows beside the journal --------------------------------------------------------------------


@pytest.fixture
def with_file(tmp_path: Path) -> Path:
    journal = Journal(tmp_path, durable=False)
    journal.create()
    _append_rows(journal, 0, _table(3), _table(LARGE))
    journal.close()
    return tmp_path / "000000000000-1.arrow"


def test_a_file_of_rows_that_is_missing_is_refused(with_file: Path) -> None:
    with_file.unlink()
    with pytest.raises(
        StorageError, match=rf"{with_file} is missing, and the journal needs its {LARGE} rows"
    ):
        _read(with_file.parent)


@pytest.mark.parametrize("change", ["cut", "grown", "flipped", "emptied"])
def test_a_file_of_rows_that_changed_is_refused(with_file: Path, change: str) -> None:
    content = with_file.read_bytes()
    changed = {
        "cut": content[:-1],
        "grown": content + b"\0",
        "flipped": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        "emptied": b"",
    }[change]
    with_file.write_bytes(changed)
    with pytest.raises(
        StorageError,
        match=rf"{with_file} is damaged: expected {len(content)} bytes with checksum [0-9a-f]{{8}},"
        rf" found {len(changed)} bytes with [0-9a-f]{{8}}\. Restore",
    ):
        _read(with_file.parent)


def test_files_of_rows_that_no_record_names_are_removed(with_file: Path) -> None:
    directory = with_file.parent
    before = _names(directory)
    (directory / "000000000001-0.arrow").write_bytes(b"a crash came before the record")
    (directory / "000000000001-1.arrow.4711.tmp").write_bytes(b"a crash came before the rename")
    (directory / "000000000000-7.arrow.4711.tmp").write_bytes(b"long ago")
    _read(directory)
    assert _names(directory) == before


def test_segments_that_were_not_finished_are_removed_and_files_of_others_not(with_file: Path) -> None:
    directory = with_file.parent
    foreign = ["notes.log.tmp", "000000000000.log.bak", "000000000001-0.arrow.bak", "000000000001.arrow"]
    for name in foreign:
        (directory / name).write_bytes(b"")
    before = _names(directory)
    (directory / "000000000001.log.4711.tmp").write_bytes(b"a crash came before the rename")
    assert len(_read(directory)) == 1
    assert _names(directory) == before
    with _opened(directory) as (journal, _):
        journal.append(Record(Kind.COMMIT, 0, AT))
        journal.trim(journal.rotate())
    assert set(_names(directory)) == {*foreign, "000000000002.log"}


def test_a_file_of_rows_has_a_format_and_one_without_is_of_the_first(with_file: Path) -> None:
    with pa.ipc.open_file(with_file) as file:
        assert file.schema.metadata == {b"penstock.format": b"rows/1"}
        table = file.read_all()
    _with_rows_as(with_file, table.replace_schema_metadata(None))
    with _opened(with_file.parent) as (_, (entry,)):
        assert _rows_of(entry) == [table.to_pylist()]


def test_a_file_of_rows_of_another_format_is_refused_by_name(with_file: Path) -> None:
    with pa.ipc.open_file(with_file) as file:
        table = file.read_all()
    _with_rows_as(with_file, table.replace_schema_metadata({b"penstock.format": b"rows/2"}))
    with pytest.raises(
        StorageError, match=f"{with_file} has format version rows/2; this Penstock reads version rows/1"
    ):
        _read(with_file.parent)


def _with_rows_as(path: Path, table: pa.Table) -> None:
    """Write a journal with one record, whose rows are in this file and have this metadata."""
    for log in _logs(path.parent):
        log.unlink()
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    content = path.read_bytes()
    rows = Rows(table.num_rows, 0, len(content), path.name, zlib.crc32(content))
    journal = Journal(path.parent, durable=False)
    journal.create()
    journal.append(Record(Kind.STEP, 0, AT, (Portion(API, "t", rows=rows),)))
    journal.close()


def test_the_file_of_a_record_that_was_cut_off_is_removed(with_file: Path) -> None:
    (log,) = _logs(with_file.parent)
    log.write_bytes(log.read_bytes()[:-1])
    assert _read(with_file.parent) == []
    assert not with_file.exists()


# -- writing that fails -------------------------------------------------------------------------


class _SmallDisk(Disk):
    """Has room for so many bytes, and takes a part of what does not fit, as a disk does."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        taken = data[: self.room]
        if not len(taken):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(taken)
        return super().write(descriptor, taken)


@pytest.mark.parametrize("room", [0, 1, RECORD_SIZE, 60])
def test_a_full_disk_leaves_the_journal_as_it_was(room: int, tmp_path: Path) -> None:
    disk = _SmallDisk(1 << 20)
    real = use_disk(disk)
    journal = Journal(tmp_path, durable=True)
    journal.create()
    try:
        journal.append(RECORDS[0])
        before, told = _contents(tmp_path), (journal.next, journal.bytes)
        disk.room = room
        with pytest.raises(
            StorageError, match=r"000\.log cannot be written: No space left on device\. Make room"
        ):
            journal.append(RECORDS[1])
        assert _contents(tmp_path) == before
        assert (journal.next, journal.bytes) == told
        disk.room = 1 << 20
        assert journal.append(RECORDS[2]).number == 1
    finally:
        use_disk(real)
        journal.close()
    assert _read(tmp_path) == [RECORDS[0], RECORDS[2]]


def test_a_disk_that_is_really_full_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """With a limit of the operating system on the size of files, so with its real errors."""
    _written(tmp_path, [RECORDS[:3]])
    size = _logs(tmp_path)[0].stat().st_size
    program = f"""
        import resource
        from pathlib import Path
        from penstock.errors import StorageError
        from penstock.journal.journal import Journal
        from tests.test_journal import LARGE, RECORDS, _append_rows, _names, _table

        directory = Path({str(tmp_path)!r})
        journal = Journal(directory, durable=True)
        journal.open(0)
        before = _names(directory)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size} + 30, unlimited[1]))
        attempts = [
            lambda: journal.append(RECORDS[3]),
            lambda: _append_rows(journal, 2, _table(3)),
            lambda: _append_rows(journal, 2, _table(LARGE)),
        ]
        for attempt in attempts:
            try:
                attempt()
            except StorageError as error:
                assert "cannot be written: File too large" in str(error), error
            else:
                raise AssertionError("it was written")
            assert journal.next == 3
            assert (directory / "000000000000.log").stat().st_size == {size}
            assert _names(directory) == before
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        _append_rows(journal, 2, _table(LARGE))
        journal.append(RECORDS[5])
        journal.close()
    """
    _run(program)
    with _opened(tmp_path) as (_, entries):
        assert [e.record.kind for e in entries[3:]] == [Kind.STEP, Kind.SKIP]
        assert _records(entries)[:3] == RECORDS[:3]
        assert _rows_of(entries[3]) == [_table(LARGE).to_pylist()]


def test_what_a_full_disk_refused_is_not_written_by_closing(tmp_path: Path) -> None:
    _written(tmp_path, [RECORDS[:3]])
    before = _contents(tmp_path)
    program = f"""
        import resource
        from pathlib import Path
        from penstock.errors import StorageError
        from penstock.journal.journal import Journal
        from tests.test_journal import RECORDS

        journal = Journal(Path({str(tmp_path)!r}), durable=True)
        journal.open(0)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, unlimited[1]))
        try:
            journal.append(RECORDS[3])
        except StorageError:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            journal.close()
    """
    _run(program)
    assert _contents(tmp_path) == before


def _run(program: str) -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_a_journal_that_cannot_be_synced_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    journal.append(RECORDS[0])

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(
            StorageError, match=r"could not be synced \(Input/output error\)\. Start the pipeline"
        ):
            journal.append(RECORDS[1])
    attempts: list[Callable[[], object]] = [lambda: journal.append(RECORDS[1]), journal.rotate]
    for attempt in attempts:
        with pytest.raises(
            StorageError, match=r"the journal cannot be written any more: .*000\.log could not be synced"
        ):
            attempt()
    journal.close()
    assert _read(tmp_path) in (RECORDS[:1], RECORDS[:2]), "what the disk has is unknown, and either is right"


def test_a_temporary_file_that_cannot_be_filled_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    journal.append(RECORDS[0])
    before = _contents(tmp_path)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match=r"001\.log cannot be written: No space left"):
            journal.rotate()
    assert _contents(tmp_path) == before
    journal.append(RECORDS[1])
    assert journal.rotate() == 2
    journal.close()
    assert _read(tmp_path) == RECORDS[:2]


# -- rotate, trim, open again -------------------------------------------------------------------


def test_appending_goes_on_where_the_journal_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    journal.close()
    for number, record in enumerate(RECORDS):
        with _opened(tmp_path) as (journal, entries):
            assert _records(entries) == RECORDS[:number]
            assert journal.next == number
            if number % 2:
                assert journal.rotate() == number
            assert journal.append(record).number == number
    assert _read(tmp_path) == RECORDS


def test_appending_goes_on_after_what_was_cut_off(tmp_path: Path) -> None:
    _written(tmp_path, [RECORDS[:3]])
    (log,) = _logs(tmp_path)
    log.write_bytes(log.read_bytes()[:-9])
    with _opened(tmp_path) as (journal, _):
        entry = journal.append(RECORDS[4], b"12345")
    assert entry.number == 2
    assert log.read_bytes()[entry.data : entry.data + 5] == b"12345"
    assert _read(tmp_path) == [*RECORDS[:2], RECORDS[4]]


def test_rotating_twice_makes_one_segment(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    assert journal.rotate() == 0
    journal.append(RECORDS[0])
    assert journal.rotate() == journal.rotate() == 1
    journal.close()
    with _opened(tmp_path) as (reopened, _):
        assert reopened.rotate() == 1
    assert _names(tmp_path) == ["000000000000.log", "000000000001.log"]


def test_trimming_keeps_what_is_needed_and_no_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    for transaction in range(3):
        _append_rows(journal, transaction, _table(LARGE))
        journal.append(Record(Kind.COMMIT, transaction, AT))
        assert journal.bytes > LARGE * 8
        record = journal.rotate()
        assert journal.bytes == 0
    journal.trim(2)
    needed = [
        "000000000002-0.arrow",
        "000000000002.log",
        "000000000004-0.arrow",
        "000000000004.log",
        "000000000006.log",
    ]
    assert _names(tmp_path) == needed
    journal.trim(3)  # which is in the middle of a segment: the segment stays
    assert _names(tmp_path) == needed[1:]
    journal.trim(record)
    assert _names(tmp_path) == ["000000000006.log"]
    journal.append(RECORDS[0])
    journal.close()
    assert _read(tmp_path, 6) == RECORDS[:1]
    with pytest.raises(StorageError, match="holds records 6 to 6, and records from 4 on are needed"):
        _read(tmp_path, 4)


def test_a_crash_while_trimming_leaves_a_journal(
    three_segments: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever files are gone already, what is left is read."""
    directory, records = three_segments
    removed: list[str] = []
    unlink = Path.unlink

    def crash_after_one(path: Path, missing_ok: bool = False) -> None:
        if removed:
            raise KeyboardInterrupt
        removed.append(path.name)
        unlink(path)

    with _opened(directory) as (journal, _):
        monkeypatch.setattr(Path, "unlink", crash_after_one)
        with pytest.raises(KeyboardInterrupt):
            journal.trim(6)
    monkeypatch.undo()
    assert removed == ["000000000000.log"], "in order, so that no gap is left"
    assert _records(read_entries(directory)) == records[3:]
    assert _read(directory, 6) == records[6:]


def test_damage_in_what_is_superfluous_does_not_matter(three_segments: tuple[Path, list[Record]]) -> None:
    directory, records = three_segments
    _logs(directory)[0].write_bytes(b"")
    assert _read(directory, 3) == records[3:]
    assert _read(directory, 4) == records[4:]
    with pytest.raises(StorageError, match=r"000000000000\.log is damaged at offset 0"):
        _read(directory, 2)


def test_bytes_are_counted_over_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    _append_rows(journal, 0, _table(3), _table(LARGE))
    journal.close()
    with _opened(tmp_path) as (reopened, _):
        assert reopened.bytes == journal.bytes + HEADER_SIZE


def test_a_new_journal_is_not_begun_over_one_that_has_records(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=True)
    journal.create()
    journal.create()  # a crash came before anything else
    journal.append(RECORDS[0])
    journal.close()
    with pytest.raises(StorageError, match=r"000\.log has records, and a new journal was to begin there"):
        Journal(tmp_path, durable=True).create()
    assert _read(tmp_path) == RECORDS[:1]


# -- the command line ---------------------------------------------------------------------------


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    _written(tmp_path / "journal", [RECORDS[:4], RECORDS[4:8]])
    return tmp_path


def test_show_is_a_table(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("rich._console", None)  # one that an earlier test made has the width of then
    done = CliRunner().invoke(app, ["journal", "show", str(storage)])
    assert done.exit_code == 0, done.output
    lines = [re.split(r" *│ *", line)[1:-1] for line in done.output.splitlines() if line.startswith("│")]
    assert [line[:3] for line in lines if line[0]] == [
        ["0", "1", "begin"],
        ["1", "1", "step"],
        ["2", "1", "commit"],
        ["3", "", "connector"],
        ["4", "2", "step"],
        ["5", "2", "skip"],
        ["6", "3", "begin"],
        ["7", "3", "roll-back"],
    ]
    assert {line[3] for line in lines if line[0]} == {"2026-05-17 12:30:15.123"}
    contents = [line[4] for line in lines]
    for content in (
        "orders_in -> orders: not counted",
        "prices_in -> prices: 20 rows",
        "orders_in: 40 rows with hash ffffffffffffffff",
        "api -> orders: 3 rows",
        "connector: orders_in",
        "paused: True",
        "reason: division by zero",
    ):
        assert content in contents, content
    assert "None" not in done.output


def test_show_takes_no_markup_from_the_journal(tmp_path: Path) -> None:
    _written(tmp_path / "journal", [[Record(Kind.SKIP, 1, AT, note={"reason": "[red]a[/blue]"})]])
    done = CliRunner().invoke(app, ["journal", "show", str(tmp_path)])
    assert done.exit_code == 0
    assert "[red]a[/blue]" in done.output


def test_show_json_has_a_line_for_each_record(storage: Path) -> None:
    done = CliRunner().invoke(app, ["journal", "show", "--json", str(storage)])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert [(line["record"], line["kind"], line["transaction"]) for line in lines] == [
        (n, record.kind, record.transaction) for n, record in enumerate(RECORDS[:8])
    ]
    assert {line["at"] for line in lines} == {"2026-05-17T12:30:15.123456+00:00"}
    assert [line["segment"] for line in lines] == ["000000000000.log"] * 4 + ["000000000004.log"] * 4
    assert lines[0].keys() == {"record", "kind", "transaction", "at", "segment"}
    assert lines[1]["portions"][0] == {
        "connector": "orders_in",
        "table": "orders",
        "rows": None,
        "splits": [
            {"source": "csv", "payload": dict(SPLIT.payload)},
            {"source": "csv", "payload": {"path": "ü"}},
        ],
        "file": None,
        "position": {"byte": [1, None]},
    }
    assert lines[2]["digests"]["orders_in"] == {"rows": 40, "hash": "ffffffffffffffff"}
    assert lines[2]["note"] == {"delivered": {"out": 0}}
    assert lines[4]["portions"][0]["rows"] == 3


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_show_refuses_damage_without_a_traceback(storage: Path, options: list[str]) -> None:
    log = _logs(storage / "journal")[0]
    log.write_bytes(log.read_bytes()[:-1])
    done = CliRunner().invoke(app, ["journal", "show", *options, str(storage)])
    assert done.exit_code == 1
    assert re.search(r"error\[STORAGE_ERROR\].*000000000000\.log is damaged", done.stderr.replace("\n", ""))
    assert "Traceback" not in done.output


def test_show_of_what_is_no_storage_directory(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["journal", "show", str(tmp_path)])
    assert done.exit_code == 1
    assert "is no storage directory: it has no journal" in done.stderr


# -- skipping a transaction of a pipeline that is not running -------------------------------------


def _stopped(directory: Path, last: int, records: Sequence[Record], first: int = 0) -> None:
    storage = Storage(directory)
    storage.begin("p", "owner", Saved("", transaction=last, first=first))
    for record in records:
        storage.journal.append(record)
    storage.close()


def test_a_transaction_that_waits_can_be_skipped_once(tmp_path: Path) -> None:
    step = Record(Kind.STEP, 5, AT)
    _stopped(tmp_path, 4, [step])
    with pytest.raises(
        StateError, match=r"transaction 4 cannot be skipped: the one that waits .* is transaction 5"
    ):
        skip_transaction(tmp_path, 4)
    skip_transaction(tmp_path, 5)
    found = _read(tmp_path / "journal")
    assert found == [step, replace(found[1], kind=Kind.SKIP, transaction=5)]
    assert datetime.now(UTC) - found[1].at < timedelta(minutes=5)
    with pytest.raises(StateError, match=r"transaction 5 cannot be skipped: the one that waits .* is none"):
        skip_transaction(tmp_path, 5)


def test_the_initial_transaction_cannot_be_skipped(tmp_path: Path) -> None:
    step = Record(Kind.STEP, 0, AT)
    _stopped(tmp_path, -1, [step])
    with pytest.raises(StateError, match="transaction 0 computes the views from nothing"):
        skip_transaction(tmp_path, 0)
    assert _read(tmp_path / "journal") == [step]


def test_the_first_transaction_of_a_replica_in_the_middle_cannot_be_skipped(tmp_path: Path) -> None:
    step = Record(Kind.STEP, 5, AT)
    _stopped(tmp_path, 4, [step], first=5)
    with pytest.raises(StateError, match=r"transaction 5 is the first of this replica.* empty storage"):
        skip_transaction(tmp_path, 5)
    assert _read(tmp_path / "journal") == [step]
