"""Find the newest checkpoint of a place that is whole; what cannot be reached is an error, not 'nothing'."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from penstock.checkpoint.identity import is_id
from penstock.checkpoint.model import MANIFEST, Entry, Manifest
from penstock.errors import DamagedError, SyncError
from penstock.storage.files import Content
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import each
from penstock.sync.model import RemoteCatalog, batches_of, files_of, manifest_key
from penstock.sync.ownership import read_catalog
from penstock.trace.files import BATCH_NAME

_log = logging.getLogger("penstock")

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Found:
    """A checkpoint of a place, every object of which is there."""

    location: Location
    catalog: RemoteCatalog
    entry: Entry
    manifest: Manifest
    data: bytes  # of the manifest


def remote_checkpoints(location: Location) -> Sequence[Entry]:
    """What the place lists, oldest first."""
    catalog, _ = read_catalog(location)
    return () if catalog is None else catalog.checkpoints


def remote_manifest(location: Location, entry: Entry) -> Manifest:
    """The manifest that the catalog means; `DamagedError` if it is not there as it was."""
    return _manifest(location, entry)[0]


def _manifest(location: Location, entry: Entry) -> tuple[Manifest, bytes]:
    key = manifest_key(entry.id, entry.hosts)
    if not is_id(entry.id):
        raise DamagedError(f"{location}: {entry.id!r} is no checkpoint")
    found = location.read(key)
    if found is None:
        raise DamagedError(f"{location}: {key} is missing")
    content = Content(len(found.data), xxhash.xxh3_128_hexdigest(found.data))
    if content != entry.manifest:
        raise DamagedError(f"{location}: {key} is damaged: expected {entry.manifest}, found {content}")
    manifest = MANIFEST.parse(found.data, f"{location}/{key}")
    if manifest.checkpoint != entry.id:
        raise DamagedError(f"{location}/{key} is damaged: it is of checkpoint {manifest.checkpoint!r}")
    _refuse_strange_names(manifest, f"{location}/{key}")
    return manifest, found.data


def _refuse_strange_names(manifest: Manifest, where: str) -> None:
    """They become names of files here, so none may lead out of the storage directory."""
    names = [*manifest.traces, *manifest.files, manifest.journal]
    batches = [f"{name}.arrow" for batches in manifest.traces.values() for name in batches]
    strange = [name for name in names if not _PLAIN.fullmatch(name)]
    strange += [name for name in batches if not BATCH_NAME.fullmatch(name)]
    if strange:
        raise DamagedError(f"{where} is damaged: {strange[0]!r} is no name of a file of a checkpoint")


def find(location: Location, wanted: str, config: SyncConfig, without: Collection[str] = ()) -> Found | None:
    """`latest`: the newest checkpoint that is whole and not one of `without`; an id: that one, which must be.

    None if nothing was ever pushed to the place, or if it has no checkpoint of that id.
    """
    catalog, _ = read_catalog(location)
    if catalog is None:
        return None
    if wanted != "latest":
        entry = next((e for e in catalog.checkpoints if e.id == wanted), None)
        return None if entry is None else _whole(location, catalog, entry, config)
    faults: list[str] = []
    for entry in reversed(catalog.checkpoints):
        if entry.id in without:
            faults.append(f"{location}: checkpoint {entry} is damaged")
            continue
        try:
            return _whole(location, catalog, entry, config)
        except DamagedError as error:
            _log.warning("checkpoint %s is passed over: %s", entry, error)
            faults += error.faults
    if not faults:
        return None
    listed = "\n".join(f"  {fault}" for fault in dict.fromkeys(faults))
    raise SyncError(
        f"{location}: no checkpoint is whole. These objects are missing or damaged:\n{listed}\nIf the"
        " place is a copy that lags behind, wait and try again.",
        bucket=location.bucket,
    )


def _whole(location: Location, catalog: RemoteCatalog, entry: Entry, config: SyncConfig) -> Found:
    """A checkpoint, if every object of it is there."""
    manifest, data = _manifest(location, entry)
    nowhere = Path()
    pieces = [*batches_of(manifest, nowhere), *files_of(manifest, nowhere)]
    sizes = each(lambda piece: location.size(piece.key), pieces, config.lookups)
    faults = [
        f"{location}: {piece.key} is missing"
        if size is None
        else f"{location}: {piece.key} is damaged: expected {piece.content.bytes} bytes, found {size}"
        for piece, size in zip(pieces, sizes, strict=True)
        if size != piece.content.bytes
    ]
    if faults:
        raise DamagedError("; ".join(faults), faults)
    return Found(location, catalog, entry, manifest, data)
