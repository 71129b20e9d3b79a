"""The catalog of a storage directory: which checkpoints there are, and which a start may go on from."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from penstock.checkpoint.identity import is_id
from penstock.checkpoint.model import CATALOG, CATALOG_FILE, STATE_FILE, Catalog, Entry
from penstock.errors import DamagedError, StateError, StorageError
from penstock.journal.journal import first_record
from penstock.storage.files import children, explained, sync_directory
from penstock.trace.files import BATCH_NAME, BatchFiles


class CatalogFile:
    """The catalog, on disk and in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "checkpoints"
        self.files = BatchFiles(root / "batches")
        """The batches that checkpoints list. They may lie on several hosts instead."""
        self.closed = False
        self.changing = threading.RLock()
        """Held from reading the catalog to writing it: a reader may find damage while one is being taken."""
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        assert self._catalog is not None, "the catalog was read or begun"
        return self._catalog

    # -- reading and writing --------------------------------------------------------------------

    def read(self) -> Catalog | None:
        """Read the catalog; None if the directory is new."""
        path = self.root / CATALOG_FILE
        with explained(f"{self.root} cannot be used", "Check the disk and its rights."):
            sync_directory(self.root)  # what is acted on is there to stay
        if path.exists():
            try:
                catalog = CATALOG.read(path)
            except DamagedError as error:
                raise DamagedError(f"{error}. {_REPAIR.format(root=self.root)}", error.faults) from error
            if not catalog.checkpoints:  # a crash interrupted `begin`
                return None
            self._catalog = catalog
            return catalog
        if (self.root / STATE_FILE).exists():
            raise StorageError(
                f"{self.root} was written by an earlier Penstock: it has a {STATE_FILE} and no"
                f" {CATALOG_FILE}. Use the version that wrote it, or start with an empty directory."
            )
        if any(is_id(found.name) for found in children(self.directory)) or any(
            BATCH_NAME.fullmatch(found.name)
            for trace in children(self.root / "batches")
            for found in children(trace)
        ):
            raise DamagedError(
                f"{path} is missing, and the checkpoints beside it would be lost without it."
                f" {_REPAIR.format(root=self.root)}"
            )
        return None

    def save(self, catalog: Catalog) -> None:
        """Write another catalog. What failed on disk is not there in memory either."""
        if self.closed:
            raise StateError(f"{self.root} was closed meanwhile; start the pipeline again")
        with writing():
            CATALOG.write(self.root / CATALOG_FILE, catalog)
        self._catalog = catalog

    def change(self, entry: Entry, **fields: object) -> None:
        """Write other fields of a checkpoint."""
        with self.changing:
            listed = tuple(
                replace(e, **fields) if e.id == entry.id else e  # type: ignore[arg-type]
                for e in self.catalog.checkpoints
            )
            self.save(replace(self.catalog, checkpoints=listed))

    def close(self) -> None:
        """Write nothing any more: from now on the directory may be another process's."""
        with self.changing:
            self.closed = True

    # -- finding one ----------------------------------------------------------------------------

    def find(self, reference: str) -> Entry:
        """The checkpoint with this id, beginning of an id, or name."""
        found = [e for e in self.catalog.checkpoints if e.name == reference or e.id == reference]
        found = found or [
            e for e in self.catalog.checkpoints if len(reference) >= 8 and e.id.startswith(reference)
        ]
        if len(found) != 1:
            known = ", ".join(e.name or e.id for e in self.catalog.checkpoints)
            what = "more than one checkpoint" if found else "no checkpoint"
            raise StateError(f"{what} of {self.root} is called {reference!r}; there are: {known}")
        return found[0]

    @property
    def newest(self) -> Entry:
        return self.catalog.line[-1]

    @property
    def candidates(self) -> Sequence[Entry]:
        """The checkpoints that a start may go on from if they are whole, newest first.

        From the newest in any case: if the journal does not lead on from there, opening it says so. From an
        older one only as far back as the journal reaches, and not over a change of the program: outputs may
        already have what the new one made of the rows.
        """
        catalog = self.catalog
        newest, *older = reversed(catalog.line)
        with explained(f"{self.root} cannot be used", "Check the disk and its rights."):
            begins = first_record(self.root / catalog.journal) or 0
        return [
            newest,
            *takewhile(lambda entry: entry.record >= begins and entry.origin == newest.origin, older),
        ]

    def retained(self, retention: int) -> Sequence[Entry]:
        """The newest ones, newest first; those that a start could use come before all others."""
        usable = [entry for entry in self.candidates if not entry.suspect]
        others = [entry for entry in reversed(self.catalog.line) if entry not in usable]
        return [*usable, *others][:retention]


def writing() -> AbstractContextManager[None]:
    """Explain why a checkpoint could not be written."""
    return explained(
        "the checkpoint could not be written",
        "The pipeline goes on from the one before, and the next attempt begins anew. Make room on the disk.",
    )


_REPAIR = (
    "Restore it from a copy, or have it made again from the checkpoints themselves:"
    " penstock checkpoint repair {root}"
)
