"""Copy a checkpoint to an object store: what is not there yet, then its manifest, then the catalog.

Nothing that a reader finds through the catalog is missing, and whatever a crash leaves is found by nobody and
taken for what it is by the next push, since keys say what lies under them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.model import Entry
from penstock.errors import DamagedError, FencedError, SyncError
from penstock.failpoints import failpoint
from penstock.storage.files import content_of
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop, each
from penstock.sync.model import Piece, RemoteCatalog, batches_of, files_of, manifest_key, manifest_path
from penstock.sync.ownership import Ownership
from penstock.sync.retention import retire

_log = logging.getLogger("penstock")


class Push:
    """Copies checkpoints of one storage directory to its place, one at a time."""

    def __init__(
        self, root: Path, ownership: Ownership, config: SyncConfig, stop: Stop | None = None
    ) -> None:
        self._stop = stop or Stop()
        self._root = root
        self._ownership = ownership
        self._location = ownership.location
        self._config = config
        self._swept = False
        self._there: set[str] = set()
        """Keys that were seen or put there, and not deleted since: only the holder deletes."""

    def run(self, entry: Entry, copied: Copied | None = None) -> Copied:
        """Make a checkpoint one of the place; `copied` is told, and returned, what has to be copied."""
        copied = copied or Copied()
        owner = self._ownership.hold()
        manifest = read_manifest(self._root, entry)
        batches = list(batches_of(manifest, self._root))
        files = list(files_of(manifest, self._root))
        missing = self._missing(batches)
        manifest_file = Piece(manifest_key(entry.id), manifest_path(self._root, entry.id), entry.manifest)
        copied.expect([*missing, *files, manifest_file])
        self._send(missing, copied)
        failpoint("sync.batches")
        self._send(files, copied)
        failpoint("sync.files")
        self._send([manifest_file], copied)
        failpoint("sync.manifest")
        self._stop.check()
        self._list(entry)
        failpoint("sync.catalogued")
        try:
            self._there -= retire(self._ownership, owner, self._config, sweeps=not self._swept)
            self._swept = True
        except FencedError:
            raise
        except SyncError as error:  # the checkpoint is there all the same
            _log.warning("old checkpoints could not be let go of; it is tried again: %s", error)
        return copied

    def _missing(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Those that the place does not have. Each is asked for by its key, for a listing may lag behind."""
        unknown = [piece for piece in pieces if piece.key not in self._there]
        sizes = each(lambda piece: self._location.size(piece.key), unknown, self._config.lookups)
        found = [size == piece.content.bytes for piece, size in zip(unknown, sizes, strict=True)]
        self._there |= {piece.key for piece, there in zip(unknown, found, strict=True) if there}
        return [piece for piece, there in zip(unknown, found, strict=True) if not there]

    def _send(self, pieces: Sequence[Piece], copied: Copied) -> None:
        """All of them, or an error and perhaps some."""

        def send(piece: Piece) -> None:
            self._refuse_damaged(piece)
            self._location.upload(piece.key, piece.path)
            self._there.add(piece.key)
            copied.add(piece)

        each(send, pieces, self._config.uploads, self._stop)

    @staticmethod
    def _refuse_damaged(piece: Piece) -> None:
        """What is not what it was is not copied under a name that says it is."""
        try:
            found = content_of(piece.path)
        except OSError as error:
            raise DamagedError(f"{piece.path} cannot be read: {error.strerror}") from error
        if found != piece.content:
            raise DamagedError(f"{piece.path} is damaged: expected {piece.content}, found {found}")

    def _list(self, entry: Entry) -> None:
        """Put the checkpoint into the catalog, in its place by time."""
        owner = self._ownership.hold()
        catalog, version = self._ownership.catalog()
        if catalog is None:
            catalog = RemoteCatalog(owner.pipeline, owner.id, owner.epoch)
        self._ownership.refuse_newer(owner, catalog)
        plain = replace(entry, suspect=False, aside=False)
        others = [e for e in catalog.checkpoints if e.id != entry.id]
        listed = tuple(sorted([*others, plain], key=lambda e: e.id))
        changed = RemoteCatalog(owner.pipeline, owner.id, owner.epoch, listed)
        if changed != catalog:
            self._ownership.save(owner, changed, version)
