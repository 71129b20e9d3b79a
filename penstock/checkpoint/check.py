"""Is a checkpoint whole? Nothing is believed before it was checked, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.model import (
    CHANGES,
    MANIFEST,
    MANIFEST_FILE,
    STATE,
    STATE_FILE,
    Carried,
    Entry,
    Manifest,
    Pending,
    Saved,
)
from penstock.errors import DamagedError, StateError
from penstock.trace.files import BatchFiles, different

Progress = Callable[[int], None]
"""Called with the number of bytes that were read."""


@dataclass(frozen=True)
class Checked:
    """A checkpoint that is whole, as far as it was looked at."""

    entry: Entry
    manifest: Manifest
    saved: Saved
    pending: list[Pending]
    carried: list[Carried]

    @property
    def changes(self) -> list[Pending | Carried]:
        """What outputs still have to get."""
        return [*self.pending, *self.carried]


def read_manifest(root: Path, entry: Entry) -> Manifest:
    """The manifest that the catalog means; `DamagedError` if it is not there as it was."""
    path = root / "checkpoints" / entry.id / MANIFEST_FILE
    if (fault := different(path, entry.manifest, deep=True)) is not None:
        raise DamagedError(fault)
    return MANIFEST.read(path)


def check(
    root: Path,
    entry: Entry,
    *,
    deep: bool,
    progress: Progress = lambda _: None,
    files: BatchFiles | None = None,
) -> Checked:
    """Look at every file of a checkpoint; `deep`: at every byte of its batches too, which are `files`.

    `DamagedError` has all faults, not only the first.
    """
    files = files or BatchFiles(root / "batches")
    directory = root / "checkpoints" / entry.id
    manifest = read_manifest(root, entry)
    refuse_other_hosts(manifest, files.hosts, root)
    faults: list[str] = []
    for name, expected in manifest.files.items():
        if (fault := different(directory / name, expected, deep=True)) is not None:
            faults.append(fault)
        progress(expected.bytes)
    for fault, size in files.faults(manifest.traces, deep=deep):
        if fault is not None:
            faults.append(fault)
        progress(size)
    saved, pending, carried = None, [], []
    if not faults:
        try:
            saved = STATE.read(directory / STATE_FILE)
            pending = [
                Pending(waiting.output, waiting.transaction, CHANGES.read(directory / name))
                for name, waiting in saved.waiting.items()
            ]
            carried = [Carried(view, CHANGES.read(directory / name)) for name, view in saved.carried.items()]
        except DamagedError as error:
            faults = list(error.faults)
    if faults or saved is None:
        raise DamagedError("; ".join(faults), faults)
    return Checked(entry, manifest, saved, pending, carried)


def refuse_other_hosts(found: Manifest | Entry, hosts: int, root: Path) -> None:
    """What lies on hosts that are not asked is neither missing nor damaged."""
    if found.hosts != hosts:
        id_ = found.checkpoint if isinstance(found, Manifest) else found.id
        how = "without 'hosts'" if found.hosts == 1 else f"with 'hosts': {found.hosts}"
        raise StateError(
            f"the checkpoint {id_} in {root} has its batches on {_machines(found.hosts)}, and is to be used"
            f" on {_machines(hosts)}: start the pipeline {how}, and ask it for its checkpoints. With another"
            " number of hosts it starts in an empty directory, from a copy in an object store."
        )


def _machines(hosts: int) -> str:
    return "one machine" if hosts == 1 else f"{hosts} hosts"
