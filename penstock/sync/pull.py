"""Copy a checkpoint from an object store into a storage directory: batches, state files, manifest, catalog.

Only what is not there yet is fetched. On several hosts each fetches its batches, and what is listed here has
the numbers that the hosts have now, however many there were when the checkpoint was taken.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.checkpoint.model import MANIFEST, Catalog, Entry
from penstock.checkpoint.store import CheckpointStore
from penstock.failpoints import failpoint
from penstock.journal.journal import Journal, remove_journal
from penstock.storage.files import explained, make_directory, write_file
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop
from penstock.sync.fetching import Fetcher, missing
from penstock.sync.model import batches_of, dealt, files_of, manifest_path
from penstock.sync.parts import Several
from penstock.sync.remote import Found


class Pull:
    """Fetches checkpoints into one storage directory, which nobody runs in meanwhile."""

    def __init__(
        self,
        store: CheckpointStore,
        config: SyncConfig,
        stop: Stop | None = None,
        several: Several | None = None,
    ) -> None:
        self._stop = stop or Stop()
        self._several = several
        self._store = store
        self._root = store.root
        self._config = config

    def run(self, found: Found, pipeline: str, owner: str, copied: Copied | None = None) -> Copied:
        """Make a checkpoint the newest of the directory; `copied` is told, and returned, what is fetched.

        `pipeline` is whose the directory is to be, `owner` what outputs know it by.
        """
        copied = copied or Copied()
        if self._store.read() is None:
            self._begin(pipeline, owner)
        if any(entry.id == found.entry.id for entry in self._store.catalog.checkpoints):
            if self._store.catalog.owner != owner:  # the same checkpoint, in a place that is another's
                if self._several is not None:
                    self._several.join(owner)  # refused if the hosts know the pipeline by another id
                self._store.save(replace(self._store.catalog, owner=owner))
            return copied
        fetcher = Fetcher(found.location, self._config, self._stop)
        files = missing(list(files_of(found.manifest, self._root)), self._stop)
        copied.expect(files)
        with explained("the checkpoint could not be fetched", "Make room on the disk, and try again."):
            self._fetch_batches(found, owner, fetcher, copied)
            failpoint("sync.fetched-batches")
            fetcher.fetch(files, copied)
            entry = self._write_manifest(found)
            failpoint("sync.fetched-manifest")
            if not self._store.catalog.checkpoints:
                begin_journal(self._root / found.manifest.journal, entry.record)
        self._list(entry, found.manifest.journal, pipeline, owner)
        failpoint("sync.fetched")
        return copied

    def _fetch_batches(self, found: Found, owner: str, fetcher: Fetcher, copied: Copied) -> None:
        pieces = list(batches_of(found.manifest, self._root))
        if self._several is None:
            lacking = missing(pieces, self._stop)
            copied.expect(lacking)
            fetcher.fetch(lacking, copied)
            return
        there = dealt(found.manifest, self._several.hosts)
        hosts = {piece.path: piece.host for piece in batches_of(there, self._root)}
        mine = [replace(piece, host=hosts[piece.path]) for piece in pieces]
        self._several.join(owner).pull(found.entry.id, found.location, mine, copied, self._stop)

    def _write_manifest(self, found: Found) -> Entry:
        """As it came, or as it is on this number of hosts; returns how the catalog is to list it."""
        path = manifest_path(self._root, found.entry.id)
        manifest = dealt(found.manifest, 1 if self._several is None else self._several.hosts)
        data = found.data if manifest is found.manifest else MANIFEST.encode(manifest)
        make_directory(path.parent)
        content = write_file(path, lambda file: file.write(data), durable=True)
        size = manifest.bytes + content.bytes
        return replace(found.entry, manifest=content, bytes=size, hosts=manifest.hosts)

    def _begin(self, pipeline: str, owner: str) -> None:
        """An empty catalog comes first: with it, what a crash leaves is garbage and no lost checkpoint."""
        with explained(f"{self._root} cannot be used", "Check the disk and its rights."):
            make_directory(self._store.directory)
            make_directory(self._root / "batches")
        self._store.save(Catalog(pipeline, owner))

    def _list(self, entry: Entry, journal: str, pipeline: str, owner: str) -> None:
        plain = replace(entry, suspect=False, aside=False, verified=None)
        with self._store.changing:
            catalog = self._store.catalog
            listed = (*catalog.checkpoints, plain)
            self._store.save(Catalog(pipeline, owner, journal, listed))


def begin_journal(directory: Path, record: int) -> None:
    """An empty journal, which goes on from a checkpoint with this record."""
    remove_journal(directory)
    journal = Journal(directory, durable=True)
    journal.create(record)
    journal.close()
