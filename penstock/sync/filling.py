"""Hosts that lost their disks get their batches from the object store again, before the pipeline goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.model import Entry
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import DamagedError
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop
from penstock.sync.fetching import missing
from penstock.sync.model import Piece, batches_of, files_of
from penstock.sync.parts import Parts
from penstock.sync.remote import Found, find

_log = logging.getLogger("penstock")


def fill(store: CheckpointStore, config: SyncConfig, parts: Parts, stop: Stop) -> None:
    """Have hosts fetch what they lack of the newest checkpoint that is whole then.

    If none is, nothing is said: whoever restores one says what is missing, and where.
    """
    for entry in store.candidates:
        try:
            manifest = read_manifest(store.root, entry)
            if missing(list(files_of(manifest, store.root)), stop):
                continue  # it is passed over whatever the hosts have
            here = list(batches_of(manifest, store.root))
            lacking = parts.lacking(here, deep=entry.suspect)
            if not lacking or _fetched(store, config, parts, entry, lacking, stop):
                return
        except DamagedError as error:
            _log.warning("checkpoint %s cannot be made whole: %s", entry, error)


def _fetched(
    store: CheckpointStore, config: SyncConfig, parts: Parts, entry: Entry, lacking: list[Piece], stop: Stop
) -> bool:
    """Whether the object store had them. They may lie under the keys of other hosts: see `dealt`."""
    for found in _places(config, entry):
        keys = {piece.path: piece.key for piece in batches_of(found.manifest, store.root)}
        if all(piece.path in keys for piece in lacking):
            hosts = ", ".join(str(host) for host in sorted({piece.host for piece in lacking}))
            _log.warning(
                "%d batches of checkpoint %s are missing on hosts %s, and are fetched from %s",
                len(lacking),
                entry,
                hosts,
                found.location,
            )
            pieces = [replace(piece, key=keys[piece.path]) for piece in lacking]
            parts.pull(entry.id, found.location, pieces, Copied(), stop)
            return True
    return False


def _places(config: SyncConfig, entry: Entry) -> Iterator[Found]:
    """Where the object store has the checkpoint."""
    for bucket in (config.bucket, config.read_bucket):
        if bucket is not None:
            found = find(Location(config, bucket), entry.id, config)
            if found is not None:
                yield found
