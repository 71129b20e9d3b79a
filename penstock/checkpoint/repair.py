"""Make a catalog that was lost again, from the manifests of the checkpoints that are there.

What a crash left is there too, and is nothing to be afraid of. A checkpoint that was being deleted has lost
its manifest first. One that was taken, and not listed yet, is whole, and the journal leads on from it as from
the one before. A copy that was made to go back, and not listed yet, is whole, and its journal, empty, is
there: then the pipeline has gone back, which is what was asked for, with all other checkpoints put aside and
the journal of before as it was. Without a manifest the pipeline has not gone back. There is nothing between,
because a checkpoint is on the same line as the newest if it has the same journal, and on no other condition.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.checkpoint.catalog import writing
from penstock.checkpoint.check import check
from penstock.checkpoint.identity import is_id
from penstock.checkpoint.model import (
    CATALOG,
    CATALOG_FILE,
    DAMAGED_SUFFIX,
    MANIFEST,
    MANIFEST_FILE,
    Catalog,
    Entry,
    Manifest,
)
from penstock.errors import DamagedError, StateError, StorageError
from penstock.journal.journal import first_record
from penstock.storage.disk import disk
from penstock.storage.files import children, content_of, sync_directory
from penstock.trace.files import UnseenFiles


def rebuild(root: Path, *, without_damaged: bool) -> Catalog:
    """A catalog of the checkpoints that are whole, as far as that is seen without reading all batches, and
    without asking the hosts that have them, if there are several.

    One that is damaged is an error, or with `without_damaged` it is given a name under which clean-up leaves
    it alone; batches that only it needs are lost then.
    """
    _refuse_whole(root / CATALOG_FILE)
    found: list[tuple[Manifest, Entry]] = []
    faults: list[str] = []
    damaged: list[Path] = []
    for directory in children(root / "checkpoints"):
        path = directory / MANIFEST_FILE
        if not is_id(directory.name) or not path.exists():
            continue
        try:
            manifest = MANIFEST.read(path)
            entry = Entry.of(manifest, content_of(path))
            elsewhere = UnseenFiles(root / "batches", manifest.hosts) if manifest.hosts > 1 else None
            check(root, entry, deep=False, files=elsewhere)
            found.append((manifest, entry))
        except DamagedError as error:
            damaged.append(directory)
            faults += error.faults
    with_journal = [manifest for manifest, _ in found if _has_journal(root, manifest)]
    if found and found[-1][0] not in with_journal:
        newest = found[-1][0]
        faults.append(
            f"{root / newest.journal} is missing or incomplete: the newest checkpoint, {newest.checkpoint},"
            f" goes on with its record {newest.record}"
        )
    if faults and not without_damaged:
        faults = list(dict.fromkeys(faults))  # checkpoints share batches
        raise DamagedError(
            f"{'; '.join(faults)}. Restore these files from a copy, or repair again with --without-damaged to"
            " do without what they belong to.",
            faults,
        )
    if not found:
        raise StorageError(f"{root} has no checkpoint that is whole, so no catalog can be made of them.")
    with writing():
        for directory in damaged:
            disk().rename(directory, directory.with_name(f"{directory.name}{DAMAGED_SUFFIX}"))
        if damaged:
            sync_directory(root / "checkpoints")  # before there is a catalog that does not list them
        newest = with_journal[-1] if with_journal else found[-1][0]
        entries = tuple(replace(entry, aside=manifest.journal != newest.journal) for manifest, entry in found)
        catalog = Catalog(newest.pipeline, newest.owner, newest.journal, entries)
        CATALOG.write(root / CATALOG_FILE, catalog)
    return catalog


def _has_journal(root: Path, manifest: Manifest) -> bool:
    begins = first_record(root / manifest.journal)
    return begins is not None and begins <= manifest.record


def _refuse_whole(path: Path) -> None:
    """A catalog that can be read, or that a newer Penstock can read, is not made again."""
    try:
        catalog = CATALOG.read(path)
    except DamagedError:
        return
    if catalog.checkpoints:
        raise StateError(f"{path} is whole, so there is nothing to repair")
