"""What can be done with the checkpoints of a pipeline that is not running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoint.check import Progress, check, read_manifest
from penstock.checkpoint.identity import new_id
from penstock.checkpoint.model import Catalog, Entry, Manifest
from penstock.checkpoint.repair import rebuild
from penstock.checkpoint.store import CheckpointStore
from penstock.controller.recovery import plan
from penstock.controller.storage import Storage
from penstock.errors import DamagedError, StateError
from penstock.journal.journal import Journal

_ATTEMPTS = 5


@dataclass(frozen=True)
class Listed:
    """A checkpoint, and how much of it no other checkpoint has; None if that cannot be told."""

    entry: Entry
    own_bytes: int | None

    def plain(self) -> dict[str, Any]:
        """As plain JSON."""
        entry = self.entry
        return {
            "id": entry.id,
            "name": entry.name,
            "at": entry.at.isoformat(),
            "transaction": entry.transaction,
            "rows": entry.rows,
            "processed_records": entry.processed_records,
            "processed_by_host": entry.processed,
            "bytes": entry.bytes,
            "own_bytes": self.own_bytes,
            "program": entry.program,
            "verified": None if entry.verified is None else entry.verified.isoformat(),
            "suspect": entry.suspect,
            "aside": entry.aside,
        }


def listed(store: CheckpointStore) -> list[Listed]:
    """All checkpoints, oldest first."""
    manifests: dict[str, Manifest | None] = {}
    for entry in store.catalog.checkpoints:
        try:
            manifests[entry.id] = read_manifest(store.root, entry)
        except DamagedError:
            manifests[entry.id] = None
    uses = Counter(batch for m in manifests.values() if m is not None for batch in m.batches)
    found = []
    for entry in store.catalog.checkpoints:
        manifest = manifests[entry.id]
        if manifest is None:
            found.append(Listed(entry, None))
            continue
        shared = sum(
            size.bytes
            for trace, batches in manifest.traces.items()
            for name, size in batches.items()
            if uses[trace, name] > 1
        )
        found.append(Listed(entry, entry.bytes - shared))
    return found


def list_checkpoints(path: Path) -> list[Listed]:
    """All checkpoints of a storage directory, oldest first, whoever uses it."""
    store = CheckpointStore(path)
    if store.read() is None:
        raise StateError(f"{path} holds no pipeline")
    return listed(store)


def program_of(path: Path) -> str:
    """The text of the program that a storage directory was last used by, whoever uses it.

    A running pipeline may let go of a checkpoint after the catalog was read: then it is read again.
    """
    store = CheckpointStore(path)
    for _ in range(_ATTEMPTS):
        catalog = store.read()
        if catalog is None:
            raise StateError(f"{path} holds no pipeline")
        try:
            return check(path, store.newest, deep=False).saved.program
        except DamagedError:
            if store.read() == catalog:
                raise
    raise StateError(
        f"{path} is in use, and its checkpoints change faster than they can be read. Try again, or stop the"
        " pipeline first"
    )


def verify_checkpoints(
    path: Path, reference: str | None, progress: Progress
) -> Iterator[tuple[Entry, Sequence[str]]]:
    """Look at every byte of one checkpoint, or of all; yields each with its faults."""
    with _opened(path) as storage:
        store = storage.checkpoints
        entries = store.catalog.checkpoints if reference is None else (store.find(reference),)
        for entry in entries:
            try:
                store.verify(entry, progress)
                yield entry, ()
            except DamagedError as error:
                yield entry, error.faults


def name_checkpoint(path: Path, name: str | None) -> Entry:
    """Take a checkpoint of a pipeline that is not running: what its newest one has, if nothing came after."""
    with _opened(path) as storage:
        restored = storage.read(deep=True)
        assert restored is not None, "it was read before"
        checked = restored.checked
        made = plan(storage.journal.open(checked.saved.record), checked.saved.transaction, {}, lambda _: True)
        if made.stages or restored.passed_over:
            raise StateError(
                f"the journal in {path} has transactions that its newest checkpoint does not have. Run the"
                " program and stop it, which takes a checkpoint; then name that one"
            )
        return storage.checkpoints.commit(checked.saved, checked.manifest.traces, checked.changes, name)


def go_back(path: Path, reference: str, progress: Progress = lambda _: None) -> tuple[Entry, Path]:
    """Let a pipeline go on from a checkpoint: the next start begins there.

    Nothing is deleted: the journal stays where it is, and is returned; the other checkpoints are put aside.
    """
    with _opened(path) as storage:
        store = storage.checkpoints
        checked = store.verify(store.find(reference), progress)
        before = storage.path / store.catalog.journal
        directory = f"journal-{new_id()}"
        journal = Journal(storage.path / directory, durable=True)
        journal.create(checked.saved.record)
        journal.close()
        return store.go_back(checked, directory), before


def delete_checkpoint(path: Path, reference: str) -> Entry:
    """Let go of a checkpoint, and of what only it has."""
    with _opened(path) as storage:
        entry = storage.checkpoints.find(reference)
        storage.checkpoints.delete(entry)
        storage.checkpoints.sweep()
        return entry


def repair(path: Path, *, without_damaged: bool = False) -> Catalog:
    """Make the catalog again from the manifests of the checkpoints that are there."""
    storage = Storage(path, create=False)
    try:
        return rebuild(storage.path, without_damaged=without_damaged)
    finally:
        storage.close()


@contextmanager
def _opened(path: Path) -> Iterator[Storage]:
    storage = Storage(path, create=False)
    try:
        catalog = storage.checkpoints.read()
        if catalog is None:
            raise StateError(f"{path} holds no pipeline")
        storage.journal = Journal(storage.path / catalog.journal, durable=True)
        yield storage
    finally:
        storage.close()
