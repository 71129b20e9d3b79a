"""A pipeline's storage directory: who holds it, and the last state that was saved in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from penstock.engine.state import Size
from penstock.errors import StateError, StorageError
from penstock.failpoints import failpoint
from penstock.journal.journal import Journal
from penstock.sql import Program, parse_program
from penstock.storage.files import sync_directory, write_file

_VERSION = 2  # version 1 knew nothing of connectors


@dataclass(frozen=True)
class Saved:
    """The state after a transaction; -1: not even the initial one has been run."""

    pipeline: str
    program: str
    owner: str  # what outputs know this storage by
    transaction: int = -1
    record: int = 0  # the first record of the journal that came after it
    rows: dict[str, int] = field(default_factory=dict)
    circuit: list[str] = field(default_factory=list)  # every trace of the circuit, with or without batches
    traces: dict[str, dict[str, Size]] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)  # of input connectors
    paused: dict[str, bool] = field(default_factory=dict)  # input connectors that somebody paused or resumed
    delivered: dict[str, int] = field(default_factory=dict)  # to output connectors


class Storage:
    """The directory, locked for this process while it is open."""

    def __init__(self, path: str | os.PathLike[str] | None, *, create: bool = True) -> None:
        if not create and path is not None and not Path(path, "state.json").exists():
            raise StorageError(f"{path} is no storage directory: it has no state.json.")
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
        failpoint("checkpoint.batches")
        text = json.dumps({"version": _VERSION, **asdict(saved)}, indent=1).encode()
        write_file(self.path / "state.json", lambda file: file.write(text), durable=True)
        self._synced = {(trace, name) for trace, batches in saved.traces.items() for name in batches}
        failpoint("checkpoint.saved")

    def read(self) -> Saved | None:
        """What was saved; None if the directory is new."""
        path = self.path / "state.json"
        sync_directory(self.path)  # what is acted on is there to stay
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
            if version != _VERSION:
                raise StorageError(
                    f"{path} has format version {version}; this Penstock reads version {_VERSION}."
                )
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
        return saved

    def load(self, pipeline: str, program: Program) -> Saved | None:
        """What was saved by this pipeline, whose views must be those of the program."""
        saved = self.read()
        if saved is None:
            return None
        if saved.pipeline != pipeline:
            raise StorageError(
                f"the storage {self.path} belongs to the pipeline {saved.pipeline!r}, not to {pipeline!r}."
                " Give this pipeline another directory."
            )
        self._compare(parse_program(saved.program), program)
        if saved.program != program.text:
            saved = replace(saved, program=program.text)
            self.save(saved)  # so that the next start compares with what has run
        return saved

    def _compare(self, then: Program, now: Program) -> None:
        """The views must be the same; connectors may come and go, and none may become another."""
        if then.meaning != now.meaning:
            raise StorageError(
                f"the storage {self.path} was written by another version of the program. Run the program it"
                " was written by, or start with an empty directory."
            )
        for name, connector in now.connectors.items():
            before = then.connectors.get(name)
            if before is None:
                continue
            for place, was, is_ in _differences("", before.config, connector.config):
                if place.split(".")[0] in ("transport", "format"):
                    raise StorageError(
                        f"the connector {name} is not the one that filled {self.path}: its {place} was"
                        f" {was!r} and is {is_!r}. Change it back, give the new connector a name of its own,"
                        " or start with an empty directory."
                    )

    def close(self) -> None:
        self.journal.close()
        self._lock.close()
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)


def _differences(place: str, was: Any, is_: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two configurations differ.

    >>> list(_differences("", {"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}))
    [('a.b', 1, 3)]
    """
    if isinstance(was, dict) and isinstance(is_, dict):
        for key in was | is_:
            yield from _differences(f"{place}.{key}".lstrip("."), was.get(key), is_.get(key))
    elif was != is_:
        yield place, was, is_
