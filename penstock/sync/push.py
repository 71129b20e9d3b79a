"""Copy a checkpoint to an object store: what is not there yet, then its manifest, then the catalog.

Nothing that a reader finds through the catalog is missing, and whatever a crash leaves is found by nobody and
taken for what it is by the next push, since keys say what lies under them.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.model import Entry, Manifest
from penstock.errors import FencedError, SyncError
from penstock.failpoints import failpoint
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop
from penstock.sync.model import Piece, RemoteCatalog, batches_of, files_of, manifest_key, manifest_path
from penstock.sync.ownership import Ownership
from penstock.sync.parts import Parts
from penstock.sync.retention import retire
from penstock.sync.sending import Sender

_log = logging.getLogger("penstock")


class Push:
    """Copies checkpoints of one storage directory to its place, one at a time."""

    def __init__(
        self,
        root: Path,
        ownership: Ownership,
        config: SyncConfig,
        stop: Stop | None = None,
        parts: Parts | None = None,
    ) -> None:
        self._stop = stop or Stop()
        self._root = root
        self._ownership = ownership
        self._config = config
        self._sender = Sender(ownership.location, config, self._stop)
        self._parts = parts
        """The hosts that have the batches, if there are several."""
        self._swept = False

    def run(self, entry: Entry, copied: Copied | None = None) -> Copied:
        """Make a checkpoint one of the place; `copied` is told, and returned, what has to be copied."""
        copied = copied or Copied()
        owner = self._ownership.hold()
        if self._came_from_there(entry):
            return copied
        manifest = read_manifest(self._root, entry)
        files = list(files_of(manifest, self._root))
        key = manifest_key(entry.id, entry.hosts)
        manifest_file = Piece(key, manifest_path(self._root, entry.id), entry.manifest)
        copied.expect([*files, manifest_file])
        self._send_batches(manifest, copied)
        failpoint("sync.batches")
        self._sender.send(files, copied)
        failpoint("sync.files")
        self._sender.send([manifest_file], copied)
        failpoint("sync.manifest")
        self._stop.check()
        self._list(entry)
        failpoint("sync.catalogued")
        try:
            self._sender.are_gone(retire(self._ownership, owner, self._config, sweeps=not self._swept))
            self._swept = True
        except FencedError:
            raise
        except SyncError as error:  # the checkpoint is there all the same
            self._sender.forget()  # some may be deleted
            _log.warning("old checkpoints could not be let go of; it is tried again: %s", error)
        return copied

    def _came_from_there(self, entry: Entry) -> bool:
        """Whether the place has this state already, as it was before it was dealt to other hosts: what lies
        under the key of its manifest never changes."""
        catalog, _ = self._ownership.catalog()
        listed = () if catalog is None else catalog.checkpoints
        return any(e.id == entry.id and e.manifest != entry.manifest for e in listed)

    def _send_batches(self, manifest: Manifest, copied: Copied) -> None:
        batches = list(batches_of(manifest, self._root))
        if self._parts is None:
            missing = self._sender.missing(batches)
            copied.expect(missing)
            self._sender.send(missing, copied)
            return
        unknown = self._sender.unknown(batches)
        self._parts.push(manifest.checkpoint, unknown, copied, self._stop)
        self._sender.are_there(piece.key for piece in unknown)

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
