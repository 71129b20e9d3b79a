"""A pipeline's storage directory: who holds it, and the last state that was saved in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from penstock.engine.state import Size
from penstock.errors import StateError, StorageError
from penstock.journal.journal import Journal
from penstock.storage.files import sync_directory, write_file

_VERSION = 1


@dataclass(frozen=True)
class Saved:
    """The state after a transaction; -1: not even the initial one has been run."""

    pipeline: str
    program: str
    transaction: int
    rows: dict[str, int]
    circuit: list[str]  # every trace that the circuit has, with or without batches
    traces: dict[str, dict[str, Size]]


class Storage:
    """The directory, locked for this process while it is open."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.temporary = path is None
        self.path = Path(tempfile.mkdtemp(prefix="penstock-")) if path is None else Path(path).absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self.batches = self.path / "batches"
        self.batches.mkdir(exist_ok=True)
        self.journal = Journal(self.path / "journal", durable=not self.temporary)
        self._synced: set[tuple[str, str]] = set()
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

    def save(self, saved: Saved) -> None:
        """Make a state durable and say what it is; batches never change, so each is synced once."""
        for trace, batches in saved.traces.items():
            fresh = [name for name in batches if (trace, name) not in self._synced]
            for name in fresh:
                with open(self.batches / trace / f"{name}.arrow", "rb") as file:
                    os.fsync(file.fileno())
            if fresh:
                sync_directory(self.batches / trace)
        sync_directory(self.batches)
        text = json.dumps({"version": _VERSION, **asdict(saved)}, indent=1).encode()
        write_file(self.path / "state.json", lambda file: file.write(text), durable=True)
        self._synced = {(trace, name) for trace, batches in saved.traces.items() for name in batches}

    def load(self, pipeline: str, program: str) -> Saved | None:
        """What was saved; None if the directory is new."""
        path = self.path / "state.json"
        if not path.exists():
            if any(self.batches.iterdir()):
                raise StorageError(
                    f"{path} is missing, and without it the batches in {self.batches} mean nothing. Restore"
                    " it from a copy, or start with an empty directory."
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

    def close(self) -> None:
        self._lock.close()
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
