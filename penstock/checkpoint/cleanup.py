"""Letting go: first the catalog, then files. What a crash leaves in between, the next start removes.

Nothing is deleted as long as the manifest of a checkpoint that stays cannot be read: nobody knows what it
needs. Files of names that we do not give are left alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from penstock.checkpoint.catalog import CatalogFile
from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.identity import is_id
from penstock.checkpoint.model import CATALOG_FILE, DAMAGED_SUFFIX, MANIFEST_FILE, Batches, Entry
from penstock.errors import DamagedError
from penstock.failpoints import failpoint
from penstock.journal.journal import remove_journal, segments_with_records
from penstock.storage.files import children, remove_directory, remove_garbage

_log = logging.getLogger("penstock")


def keep(store: CatalogFile, kept: Sequence[Entry]) -> tuple[Batches, Batches]:
    """Let go of all checkpoints but these; returns the batches that they need, and those that only the others
    had."""
    try:
        needed = {batch for entry in kept for batch in read_manifest(store.root, entry).batches}
    except DamagedError as error:
        raise DamagedError(
            f"no checkpoint was deleted, for nobody knows which files a kept one needs: {error}. Restore"
            " that file from a copy, or delete that checkpoint.",
            error.faults,
        ) from error
    gone = [entry for entry in store.catalog.checkpoints if entry not in kept]
    had: Batches = set()
    for entry in gone:
        try:
            had |= read_manifest(store.root, entry).batches
        except DamagedError as error:
            _log.warning("the batches of checkpoint %s are left until the next start: %s", entry, error)
    if gone:
        store.save(replace(store.catalog, checkpoints=tuple(kept)))
    failpoint("cleanup.catalogued")
    removed = _remove_unlisted(store)
    failpoint("cleanup.removed")
    return (needed, had - needed) if removed else (needed | had, set())


def sweep(store: CatalogFile) -> bool:
    """At a start: delete what a crash left, and the journals of checkpoints that are no more.

    False if a manifest cannot be read, or not be deleted: then everything stays.
    """
    try:
        manifests = [read_manifest(store.root, entry) for entry in store.catalog.checkpoints]
    except DamagedError as error:
        _log.warning("nothing was cleaned up, for nobody knows which files a checkpoint needs: %s", error)
        return False
    if not _remove_unlisted(store):
        return False
    store.files.sweep({batch for manifest in manifests for batch in manifest.batches})
    for path in children(store.root):
        if re.fullmatch(rf"{re.escape(CATALOG_FILE)}\.\d+\.tmp", path.name):
            remove_garbage(path)
    for entry in store.catalog.checkpoints:
        for path in children(store.directory / entry.id):
            if re.fullmatch(r".+(\.\d+\.tmp|\.part)", path.name):
                remove_garbage(path)
    _sweep_journals(store, {store.catalog.journal, *(manifest.journal for manifest in manifests)})
    return True


def _remove_unlisted(store: CatalogFile) -> bool:
    """Delete the directories of checkpoints that the catalog does not have.

    False if that is not possible: what lists batches goes before they do.
    """
    if store.closed:
        return False
    listed = {entry.id for entry in store.catalog.checkpoints}
    unlisted = [p for p in children(store.directory) if is_id(p.name) and p.name not in listed]
    left = [path for path in unlisted if not remove_directory(path, first=MANIFEST_FILE)]
    return not left


def _sweep_journals(store: CatalogFile, needed: set[str]) -> None:
    """Delete journals that no checkpoint belongs to: one that was begun to go back, when a crash came before
    that was done, or one that was set aside and whose last checkpoint was deleted.

    A checkpoint that a repair did without may belong to any of them, so they stay as long as it does, unless
    they are empty.
    """
    damaged = any(path.name.endswith(DAMAGED_SUFFIX) for path in children(store.directory))
    for path in children(store.root):
        ours = path.name == "journal" or (path.name.startswith("journal-") and is_id(path.name[8:]))
        if ours and path.name not in needed and not (damaged and segments_with_records(path)):
            remove_journal(path)
