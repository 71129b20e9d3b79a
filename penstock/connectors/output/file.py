"""`file_output`: the changes of a view as CSV or JSON lines, each with its transaction.

A row carries `_change_type` ('insert' or 'delete'), `_weight` (how many times) and `_transaction`. A hidden
file beside it, the *mark*, says how much of the file is whole transactions: it is written after the bytes are
on the disk. What lies behind the mark belongs to a transaction that was not finished, and is cut off.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING, Output
from penstock.connectors.output.encode import to_cell, to_json
from penstock.errors import ConnectorError, UnreachableError
from penstock.storage.files import sync_directory, write_file

if TYPE_CHECKING:
    from penstock.sql import Connector, View

TRANSACTION_COLUMN = "_transaction"

_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Mark:
    """How much of the file is there for good; `crc32` is of its first `size` bytes."""

    owner: str
    transaction: int
    size: int
    crc32: int


class FileOutput(Output):
    """Writes one file."""

    def __init__(self, name: str, path: str, form: str, *, delimiter: str = ",") -> None:
        self.name = name
        self._path = Path(path)
        self._mark_path = self._path.parent / f".{self._path.name}.penstock"
        self._form = form
        self._delimiter = delimiter
        self._file: BinaryIO | None = None
        self._mark = Mark("", NOTHING, 0, 0)

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(["path"])
        path = os.path.abspath(config.required("path", str).removeprefix("file://"))
        form = Section.of(f"{where}: format", connector.config.get("format") or {})
        name = form.choice("name", ["csv", "json"], _SUFFIXES.get(Path(path).suffix.lower(), "json"))
        settings = form.section("config")
        settings.only(["delimiter"] if name == "csv" else [])
        delimiter = settings.get("delimiter", str, ",")
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise ConnectorError(f"{settings.path}.delimiter: expected one character, found {delimiter!r}")
        return cls(connector.name, path, name, delimiter=delimiter)

    def open(self, owner: str, schema: pa.Schema) -> int:
        owner = f"{owner}/{self.name}"
        try:
            self._file = self._locked()
            mark = self._read_mark()
            if mark is None or mark.owner != owner:
                mark = Mark(owner, NOTHING, 0, 0)
                self._cut(self._file, mark)
                self._write_mark(mark)
            else:
                self._check(self._file, mark)
                self._cut(self._file, mark)
            sync_directory(self._path.parent)  # the last run may have ended before it did
        except OSError as error:
            self.close()
            raise self._failed(error) from error
        except ConnectorError:
            self.close()
            raise
        self._mark = mark
        return mark.transaction

    def write(self, transaction: int, changes: pa.Table) -> None:
        if transaction <= self._mark.transaction:
            return
        assert self._file is not None, "write comes after open"
        lines = self._csv(transaction, changes) if self._form == "csv" else self._json(transaction, changes)
        data = "".join(line + "\n" for line in lines).encode()
        mark = Mark(
            self._mark.owner, transaction, self._mark.size + len(data), zlib.crc32(data, self._mark.crc32)
        )
        try:
            self._cut(self._file, self._mark)  # an earlier attempt may have left something
            self._append(self._file, data)
            os.fsync(self._file.fileno())
            self._write_mark(mark)
        except OSError as error:
            raise self._failed(error) from error
        self._mark = mark

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _locked(self) -> BinaryIO:
        """The file, held against every other connector and process that would write it."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115 - closed by close()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise ConnectorError(f"connector {self.name}: {self._path} is not a regular file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConnectorError(
                f"connector {self.name}: another connector or process writes {self._path};"
                " give each output a file of its own"
            ) from None
        return file

    def _read_mark(self) -> Mark | None:
        try:
            return Mark(**json.loads(self._mark_path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise self._refused(f"{self._mark_path} cannot be read ({error})") from error

    def _write_mark(self, mark: Mark) -> None:
        text = json.dumps(asdict(mark)).encode()
        write_file(self._mark_path, lambda file: file.write(text), durable=True)

    def _check(self, file: BinaryIO, mark: Mark) -> None:
        """What the mark covers must be what was written, or the file would go on from a wrong place."""
        size = os.fstat(file.fileno()).st_size
        if size < mark.size:
            raise self._refused(
                f"it has {size} bytes, and {mark.size} were written up to transaction {mark.transaction}"
            )
        found, left = 0, mark.size
        file.seek(0)
        while left and (data := file.read(min(left, 1 << 20))):
            found = zlib.crc32(data, found)
            left -= len(data)
        if found != mark.crc32:
            raise self._refused(
                f"its first {mark.size} bytes are not those written up to transaction {mark.transaction}"
                f" (CRC-32 {found:08x}, expected {mark.crc32:08x})"
            )

    def _refused(self, found: str) -> ConnectorError:
        return ConnectorError(
            f"connector {self.name}: {self._path} was changed by someone else: {found}. Put the file back as"
            f" it was, or delete {self._mark_path} to have the file written anew."
        )

    def _cut(self, file: BinaryIO, mark: Mark) -> None:
        file.truncate(mark.size)
        file.seek(mark.size)

    def _append(self, file: BinaryIO, data: bytes) -> None:
        left = memoryview(data)
        while left:  # a raw file may take only a part, on a full disk for one
            left = left[file.write(left) :]

    def _failed(self, error: OSError) -> ConnectorError:
        kind = UnreachableError if error.errno in _FULL else ConnectorError
        return kind(f"connector {self.name}: cannot write {self._path}: {error.strerror}")

    def _json(self, transaction: int, changes: pa.Table) -> list[str]:
        return [
            json.dumps(to_json(row) | {TRANSACTION_COLUMN: transaction}, ensure_ascii=False)
            for row in changes.to_pylist()
        ]

    def _csv(self, transaction: int, changes: pa.Table) -> list[str]:
        header = [[*changes.column_names, TRANSACTION_COLUMN]] if self._mark.size == 0 else []
        columns = [column.to_pylist() for column in changes.columns]
        rows = ([*values, transaction] for values in zip(*columns, strict=True))
        return [self._row(values) for values in (*header, *rows)]

    def _row(self, values: list[object]) -> str:
        return self._delimiter.join(to_cell(value, self._delimiter) for value in values)
