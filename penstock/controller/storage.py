"""A pipeline's storage directory: who holds it, and what was in it when the pipeline last stopped."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from penstock.connectors import Split, arrow_splits
from penstock.engine.state import Size
from penstock.errors import StateError, StorageError
from penstock.storage.files import sync_directory, write_file

_VERSION = 1


@dataclass(frozen=True)
class Saved:
    """What a graceful stop leaves behind."""

    pipeline: str
    program: str
    transaction: int
    rows: dict[str, int]
    traces: dict[str, dict[str, Size]]


class Storage:
    """The directory, locked for this process while it is open."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.temporary = path is None
        self.path = Path(tempfile.mkdtemp(prefix="penstock-")) if path is None else Path(path).absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self.batches = self.path / "batches"
        self.journal = self.path / "journal"
        for directory in (self.batches, self.journal):
            directory.mkdir(exist_ok=True)
        self._lock = self._acquire()

    def _acquire(self) -> TextIO:
        file = open(self.path / "LOCK", "a+")  # noqa: SIM115 (held until close)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise StateError(
                f"the storage {self.path} is in use by {holder}. Stop that pipeline first, or give this one"
                " another directory."
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        return file

    def stage(self, transaction: int, table: str, rows: pa.Table) -> list[Split]:
        """Write a transaction's rows where tasks can read them, durably."""
        path = self.journal / f"{transaction:012d}-{table}.arrow"

        def fill(file: object) -> None:
            with pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows, max_chunksize=65536)

        write_file(path, fill, durable=True)
        return arrow_splits(str(path), rows.num_rows)

    def unstage(self, transaction: int) -> None:
        """Drop the staged rows of a transaction that is in the state."""
        for path in self.journal.glob(f"{transaction:012d}-*.arrow"):
            path.unlink(missing_ok=True)

    def save(self, saved: Saved) -> None:
        """Make the state durable and say what it is."""
        for trace, batches in saved.traces.items():
            for name in batches:
                with open(self.batches / trace / f"{name}.arrow", "rb") as file:
                    os.fsync(file.fileno())
            if batches:
                sync_directory(self.batches / trace)
        sync_directory(self.batches)
        text = json.dumps({"version": _VERSION, **asdict(saved)}, indent=1).encode()
        write_file(self.path / "state.json", lambda file: file.write(text), durable=True)

    def load(self, pipeline: str, program: str) -> Saved | None:
        """What was saved, if anything, consumed: a crash from here on must not find it and lose changes."""
        path = self.path / "state.json"
        if not path.exists():
            if any(self.batches.iterdir()):
                raise StorageError(
                    f"the storage {self.path} belongs to a pipeline that did not stop in an orderly way, so"
                    " its state may lack changes. Start with an empty directory and load the tables again."
                )
            return None
        try:
            found = json.loads(path.read_bytes())
            version = found.pop("version")
            traces = {
                trace: {name: Size(**size) for name, size in batches.items()}
                for trace, batches in found.pop("traces").items()
            }
            saved = Saved(traces=traces, **found)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageError(
                f"{path} cannot be read: {error}. Restore the storage directory from a copy, or start with an"
                " empty one."
            ) from error
        if version != _VERSION:
            raise StorageError(
                f"{path} has format version {version}; this Penstock reads version {_VERSION}."
            )
        if saved.pipeline != pipeline:
            raise StorageError(
                f"the storage {self.path} belongs to the pipeline {saved.pipeline!r}, not to {pipeline!r}."
                " Give this pipeline another directory."
            )
        if saved.program != program:
            raise StorageError(
                f"the storage {self.path} was written by another version of the program. Run the program it"
                " was written by, or start with an empty directory."
            )
        return saved

    def opened(self) -> None:
        """From now on the state moves, and what was saved no longer describes it."""
        (self.path / "state.json").unlink(missing_ok=True)
        sync_directory(self.path)

    def close(self) -> None:
        self._lock.close()
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
