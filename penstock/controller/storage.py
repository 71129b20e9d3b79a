"""A pipeline's storage directory: who holds it, its checkpoints and its journal."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from penstock.checkpoint.model import CATALOG_FILE, Saved
from penstock.checkpoint.store import CheckpointStore, Restored
from penstock.errors import StorageError
from penstock.journal.journal import Journal
from penstock.storage.files import explained, make_directory
from penstock.storage.lock import locked


class Storage:
    """The directory, locked for this process while it is open."""

    def __init__(self, path: str | os.PathLike[str] | None, *, create: bool = True) -> None:
        if not create and path is not None and not _is_storage(Path(path)):
            raise StorageError(
                f"{path} is no storage directory: it has neither a {CATALOG_FILE} nor checkpoints."
            )
        self.temporary = path is None
        self.path = Path(tempfile.mkdtemp(prefix="penstock-")) if path is None else Path(path).absolute()
        self.batches = self.path / "batches"
        with explained(
            f"the storage {self.path} cannot be used",
            "Check the disk and its rights, or give another directory.",
        ):
            make_directory(self.path)
            self._lock = locked(self.path, "pipeline")
            make_directory(self.batches)
        self.checkpoints = CheckpointStore(self.path)
        self.journal = Journal(self.path / "journal", durable=not self.temporary)

    def begin(self, pipeline: str, owner: str, saved: Saved) -> None:
        """Make a new directory one of a pipeline."""
        self.journal.create()
        self.checkpoints.begin(pipeline, owner, saved)

    def read(self, *, deep: bool = False) -> Restored | None:
        """The newest checkpoint that can be used; None if the directory is new."""
        catalog = self.checkpoints.read()
        if catalog is None:
            return None
        self.journal.close()
        self.journal = Journal(self.path / catalog.journal, durable=not self.temporary)
        return self.checkpoints.restore(deep=deep)

    def load(self, pipeline: str, *, deep: bool) -> Restored | None:
        """The same, of this pipeline."""
        restored = self.read(deep=deep)
        if restored is not None and self.checkpoints.catalog.pipeline != pipeline:
            raise StorageError(
                f"the storage {self.path} belongs to the pipeline {self.checkpoints.catalog.pipeline!r}, not"
                f" to {pipeline!r}. Give this pipeline another directory."
            )
        return restored

    def close(self) -> None:
        self.checkpoints.close()
        self.journal.close()
        self._lock.close()
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)


def _is_storage(path: Path) -> bool:
    return (path / CATALOG_FILE).exists() or (path / "checkpoints").is_dir()
