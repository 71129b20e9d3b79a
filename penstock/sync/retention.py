"""Letting old checkpoints go from an object store: first the catalog, then objects.

The same rule as in a storage directory: as long as the manifest of a checkpoint that stays cannot be read,
nothing is deleted, for nobody knows what it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from penstock.checkpoint.model import MANIFEST_FILE, Entry
from penstock.errors import DamagedError
from penstock.failpoints import failpoint
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.model import OWNER_KEY, PARTS, Owner, keys_of, manifest_key
from penstock.sync.ownership import Ownership
from penstock.sync.remote import remote_manifest

_log = logging.getLogger("penstock")


def expired(checkpoints: Sequence[Entry], config: SyncConfig, now: datetime) -> list[Entry]:
    """Those that are old enough, and not among the newest; the newest of all always stays."""
    newest = max(config.retention_min_count, 1)
    limit = now - timedelta(days=config.retention_min_age)
    return [entry for entry in checkpoints[:-newest] if entry.at <= limit]


def retire(ownership: Ownership, owner: Owner, config: SyncConfig, *, sweeps: bool) -> set[str]:
    """Let go of checkpoints by count and age; returns the keys that were deleted.

    `sweeps`: and of what no checkpoint has, which pushes and clean-ups left that did not come to their ends.
    """
    catalog, version = ownership.catalog()
    if catalog is None:
        return set()
    gone = expired(catalog.checkpoints, config, datetime.now(UTC))
    if not gone and not sweeps:
        return set()
    location = ownership.location
    kept = tuple(entry for entry in catalog.checkpoints if entry not in gone)
    try:
        needed = {key for entry in kept for key in keys_of(remote_manifest(location, entry))}
    except DamagedError as error:
        _log.warning("%s: nothing was deleted, for nobody knows what a checkpoint needs: %s", location, error)
        return set()
    needed |= {manifest_key(entry.id, entry.hosts) for entry in kept}
    had = _keys(location, gone)
    ownership.refuse_newer(owner, catalog)
    if gone:
        ownership.save(owner, replace(catalog, epoch=owner.epoch, checkpoints=kept), version)
        failpoint("sync.retired")
    if sweeps:
        for folder in location.folders():
            if PARTS.fullmatch(folder):
                there = set(location.keys(folder))
                if f"{folder}/{OWNER_KEY}" not in there:  # or it is a place by itself
                    had |= there
    # A checkpoint whose manifest is gone is none, whatever else a crash leaves of it.
    unneeded = sorted(had - needed, key=lambda key: not key.endswith(MANIFEST_FILE))
    if unneeded:
        ownership.hold()  # whatever another holder put there since, he put after he had become the holder
        location.delete(unneeded)
    return set(unneeded)


def _keys(location: Location, gone: Sequence[Entry]) -> set[str]:
    """All that these checkpoints have, as far as it can be told; the next sweep finds the rest."""
    found = {manifest_key(entry.id, entry.hosts) for entry in gone}
    for entry in gone:
        try:
            found |= keys_of(remote_manifest(location, entry))
        except DamagedError as error:
            _log.warning("%s: the objects of checkpoint %s are left: %s", location, entry, error)
    return found
