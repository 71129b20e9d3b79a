"""A journal on a disk that fails, or forgets, has every record that it accepted."""

from __future__ import annotations

import errno
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StorageError
from penstock.journal.journal import INLINE_BYTES, Journal
from penstock.journal.record import API, Kind, Portion, Record
from tests.disks import Act, FailingDisk, ForgetfulDisk, using

AT = datetime(2026, 5, 17, tzinfo=UTC)


class Told:
    """A journal, and what it said that it has: the transactions of its records."""

    def __init__(self, directory: Path) -> None:
        self.journal = Journal(directory, durable=True)
        self.accepted: list[int] = []
        self.unknown: int | None = None
        """A record that could not be synced is there or not."""
        self.failures: list[str] = []

    def append(self, number: int, rows: int = 1) -> None:
        table = pa.table({"n": [number] * rows})
        before = self.journal.next
        try:
            staged, data = self.journal.stage(table, 0, 0)
            self.journal.append(Record(Kind.STEP, number, AT, (Portion(API, "t", rows=staged),)), data)
            self.accepted.append(number)
        except StorageError as error:
            self.failures.append(str(error))
            if "could not be synced" in str(error) and self.unknown is None:
                self.unknown = number
            assert self.journal.next == before

    def rotate(self) -> None:
        try:
            self.journal.rotate()
        except StorageError as error:
            self.failures.append(str(error))

    def run(self) -> None:
        """What happens to a journal."""
        self.append(1)
        self.append(2)
        self.rotate()
        self.append(3)
        self.append(4, rows=INLINE_BYTES)
        self.append(5)
        self.rotate()
        self.append(6)


def read(directory: Path) -> list[int]:
    """The transactions of the records that a start finds; another record can follow."""
    with closing(Journal(directory, durable=True)) as journal:
        found = [entry.record.transaction for entry in journal.open(0)]
        journal.append(Record(Kind.COMMIT, 99, AT))
        return found


@pytest.mark.parametrize(
    "how",
    [
        {"acts": {Act.WRITE}},
        {"acts": {Act.WRITE}, "torn": True},
        {"acts": {Act.SYNC}, "code": errno.EIO},
        {"acts": {Act.RENAME}},
    ],
    ids=["write", "torn write", "sync", "rename"],
)
def test_the_disk_may_fail_at_any_call(tmp_path: Path, how: dict[str, Any]) -> None:
    for nth in count():
        told = Told(tmp_path / str(nth))
        told.journal.create()
        with using(FailingDisk(nth, **how)) as failing:
            told.run()
        told.journal.close()
        if not failing.failed:
            assert told.accepted == [1, 2, 3, 4, 5, 6]
            assert nth > 1
            return
        assert told.failures
        found = read(tmp_path / str(nth))
        assert [number for number in found if number != told.unknown] == told.accepted, failing.failed


def test_the_power_may_go_at_any_call(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    told = Told(root / "journal")
    cuts: list[tuple[Path, list[int]]] = []

    def after() -> None:
        for seed in (None, 0, 1, 2):
            copy = tmp_path / str(len(cuts))
            forgetful.cut(copy, seed=None if seed is None else seed + len(cuts))
            cuts.append((copy, list(told.accepted)))

    told.journal.create()
    with using(ForgetfulDisk(root, after=after)) as forgetful:
        told.run()
        after()
    told.journal.close()
    assert told.accepted == [1, 2, 3, 4, 5, 6]
    assert len(cuts) > 50
    for copy, accepted in cuts:
        found = read(copy / "journal")
        assert found[: len(accepted)] == accepted
        assert len(found) <= len(accepted) + 1


def test_the_power_may_go_while_the_journal_is_trimmed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    told = Told(root / "journal")
    told.journal.create()
    told.run()
    told.journal.append(Record(Kind.COMMIT, 6, AT))
    cuts: list[Path] = []

    def after() -> None:
        for seed in range(4):
            cuts.append(tmp_path / str(len(cuts)))
            forgetful.cut(cuts[-1], seed=seed + len(cuts))

    with using(ForgetfulDisk(root, after=after)) as forgetful:
        told.journal.trim(5)
    told.journal.close()
    for copy in cuts:
        with closing(Journal(copy / "journal", durable=True)) as journal:
            assert [entry.record.transaction for entry in journal.open(5)] == [6, 6]


@pytest.mark.parametrize("act", [Act.REMOVE, Act.SYNC])
def test_what_cannot_be_trimmed_is_an_error_of_the_storage(tmp_path: Path, act: Act) -> None:
    told = Told(tmp_path)
    with closing(told.journal):
        told.journal.create()
        told.run()
        with (
            using(FailingDisk(acts={act}, code=errno.EIO)),
            pytest.raises(StorageError, match="Input/output"),
        ):
            told.journal.trim(5)
        told.append(7)
        told.journal.trim(5)
    with closing(Journal(tmp_path, durable=True)) as journal:
        assert [entry.record.transaction for entry in journal.open(5)] == [6, 7]
