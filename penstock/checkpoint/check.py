"""Is a checkpoint whole? Nothing is believed before it was checked, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    batch_path,
)
from penstock.errors import DamagedError
from penstock.storage.files import Content, content_of

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
    fault = next(_different(path, entry.manifest, deep=True), None)
    if fault is not None:
        raise DamagedError(fault)
    return MANIFEST.read(path)


def check(root: Path, entry: Entry, *, deep: bool, progress: Progress = lambda _: None) -> Checked:
    """Look at every file of a checkpoint; `deep`: at every byte of its batches too.

    `DamagedError` has all faults, not only the first.
    """
    directory = root / "checkpoints" / entry.id
    manifest = read_manifest(root, entry)
    faults: list[str] = []
    for name, expected in manifest.files.items():
        faults += _different(directory / name, expected, deep=True)
        progress(expected.bytes)
    for trace, batches in manifest.traces.items():
        for name, size in batches.items():
            faults += _different(batch_path(root, trace, name), size.content, deep=deep)
            progress(size.bytes)
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


def _different(path: Path, expected: Content, *, deep: bool) -> Iterator[str]:
    """What is wrong with a file, if anything is."""
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            yield f"{path} is damaged: expected {expected.bytes} bytes, found {size}"
        elif deep and (found := content_of(path)) != expected:
            yield f"{path} is damaged: expected {expected}, found {found.checksum}"
    except FileNotFoundError:
        yield f"{path} is missing"
    except OSError as error:
        yield f"{path} cannot be read: {error.strerror}"
