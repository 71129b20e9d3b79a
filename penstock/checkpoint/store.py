"""The checkpoints of one storage directory: take them, find them, come back to one, let them go.

The order in which a checkpoint becomes durable: its batches; its state files; the manifest, which lists all
of them; the catalog, which lists the manifest. Letting go is the other way round: first the catalog, then
files. So whatever the catalog lists is whole, and a crash leaves no more than files that nothing lists.
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from penstock.checkpoint.check import Checked, Progress, check, read_manifest
from penstock.checkpoint.identity import is_id, new_id
from penstock.checkpoint.model import (
    CATALOG,
    CATALOG_FILE,
    MANIFEST,
    MANIFEST_FILE,
    STATE,
    STATE_FILE,
    Carried,
    Catalog,
    Entry,
    Manifest,
    Pending,
    Saved,
    Traces,
    Waiting,
    batch_path,
)
from penstock.errors import DamagedError, StateError, StorageError
from penstock.failpoints import failpoint
from penstock.storage.disk import disk
from penstock.storage.files import (
    Content,
    Filler,
    Sink,
    content_of,
    make_directory,
    remove_garbage,
    sync_directory,
    sync_file,
    write_file,
)
from penstock.trace.batch import refuse_damaged

_log = logging.getLogger("penstock")

_BATCH = re.compile(r"(\d{12}-[0-9a-f]{8}-(\d{4,}|m)|m[0-9a-f]{16})\.arrow(\.\d+\.tmp)?")
"""The names that batches have, written whole or half. A file of any other name is not ours to delete."""

Batches = set[tuple[str, str]]


@dataclass(frozen=True)
class Restored:
    """The checkpoint that a pipeline goes on from."""

    checked: Checked
    deep: bool
    """Whether every byte of its batches was looked at."""
    passed_over: Sequence[str] = ()
    """Why newer ones could not be used."""


class CheckpointStore:
    """The catalog of a storage directory, and the files that it leads to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directory = root / "checkpoints"
        self._catalog: Catalog | None = None
        self._synced: Batches = set()
        self._doubtful: Batches = set()
        self._closed = False
        self._changing = threading.RLock()
        """Held from reading the catalog to writing it: a reader may find damage while one is being taken."""

    # -- the catalog ----------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        assert self._catalog is not None, "the catalog was read or begun"
        return self._catalog

    @property
    def newest(self) -> Entry:
        return self.catalog.line[-1]

    def read(self) -> Catalog | None:
        """Read the catalog; None if the directory is new."""
        path = self.root / CATALOG_FILE
        with _explained_reading(self.root):
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
        if any(is_id(found.name) for found in _listed(self._directory)) or any(
            _BATCH.fullmatch(found.name)
            for trace in _listed(self.root / "batches")
            for found in _listed(trace)
        ):
            raise DamagedError(
                f"{path} is missing, and the checkpoints beside it would be lost without it."
                f" {_REPAIR.format(root=self.root)}"
            )
        return None

    def begin(self, pipeline: str, owner: str, saved: Saved) -> None:
        """Begin a catalog, with the state before the first transaction.

        An empty one comes first, so that a crash leaves no checkpoint without a catalog.
        """
        with _explained():
            make_directory(self._directory)
        self._save(Catalog(pipeline, owner))
        self.commit(saved, {})

    def _save(self, catalog: Catalog) -> None:
        """What failed on disk is not there in memory either."""
        if self._closed:
            raise StateError(f"{self.root} was closed meanwhile; start the pipeline again")
        with _explained():
            CATALOG.write(self.root / CATALOG_FILE, catalog)
        self._catalog = catalog

    def _change(self, entry: Entry, **fields: object) -> None:
        with self._changing:
            listed = tuple(
                replace(e, **fields) if e.id == entry.id else e  # type: ignore[arg-type]
                for e in self.catalog.checkpoints
            )
            self._save(replace(self.catalog, checkpoints=listed))

    def close(self) -> None:
        """Write nothing any more: from now on the directory may be another process's."""
        with self._changing:
            self._closed = True

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

    # -- taking one -----------------------------------------------------------------------------

    def commit(
        self, saved: Saved, traces: Traces, changes: Sequence[Pending | Carried] = (), name: str | None = None
    ) -> Entry:
        """Make a checkpoint durable as a whole, and list it; `changes` are what outputs still have to get."""
        with _explained():
            entry = self._write(saved, traces, changes, name, self.catalog.journal)
        with self._changing:
            self._save(replace(self.catalog, checkpoints=(*self.catalog.checkpoints, entry)))
        failpoint("checkpoint.saved")
        return entry

    def _write(
        self,
        saved: Saved,
        traces: Traces,
        changes: Sequence[Pending | Carried],
        name: str | None,
        journal: str,
    ) -> Entry:
        """Everything but the catalog."""
        self._refuse_name(name)
        id_ = new_id(after=max((entry.id for entry in self.catalog.checkpoints), default=None))
        directory = self._directory / id_
        self._sync_batches(traces)
        failpoint("checkpoint.batches")
        make_directory(directory)
        files = {}
        waiting = {}
        carried = {}
        for number, item in enumerate(changes):
            file = f"changes-{number}.arrow"
            files[file] = write_file(directory / file, _filler(item.changes), durable=True)
            if isinstance(item, Carried):
                carried[file] = item.view
            else:
                waiting[file] = Waiting(item.output, item.transaction)
        described = replace(saved, waiting=waiting, carried=carried)
        files[STATE_FILE] = STATE.write(directory / STATE_FILE, described)
        failpoint("checkpoint.files")
        manifest = Manifest(
            checkpoint=id_,
            at=datetime.now(UTC),
            pipeline=self.catalog.pipeline,
            owner=self.catalog.owner,
            journal=journal,
            transaction=saved.transaction,
            record=saved.record,
            rows=sum(saved.rows.values()),
            name=name,
            program=saved.meaning,
            files=files,
            traces={trace: dict(batches) for trace, batches in traces.items()},
        )
        content = MANIFEST.write(directory / MANIFEST_FILE, manifest)
        failpoint("checkpoint.manifest")
        return _entry(manifest, content)

    def _refuse_name(self, name: str | None) -> None:
        if name is None:
            return
        if is_id(name) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise StateError(
                f"{name!r} cannot be the name of a checkpoint: a name has letters, digits, '.', '_' and '-'"
            )
        if any(entry.name == name for entry in self.catalog.checkpoints):
            raise StateError(f"there is a checkpoint {name} already; choose another name, or delete that one")

    def _sync_batches(self, traces: Traces) -> None:
        """Batches never change, so each is synced once."""
        for trace, batches in traces.items():
            fresh = [name for name in batches if (trace, name) not in self._synced]
            for name in fresh:
                self._sync_batch(trace, name, batches[name].content)
            if fresh:
                sync_directory(self.root / "batches" / trace)
        sync_directory(self.root / "batches")
        self._synced = {(trace, name) for trace, batches in traces.items() for name in batches}

    def _sync_batch(self, trace: str, name: str, expected: Content) -> None:
        """Once a sync failed, a second one may succeed without the bytes: then they are written again."""
        path = batch_path(self.root, trace, name)
        if (trace, name) in self._doubtful:
            refuse_damaged(path, expected)
            write_file(path, lambda file: file.write(path.read_bytes()), durable=True)
            self._doubtful.discard((trace, name))
            return
        try:
            sync_file(path)
        except OSError:
            self._doubtful.add((trace, name))
            raise

    # -- coming back to one ---------------------------------------------------------------------

    def restore(self, *, deep: bool, journal_begins: int) -> Restored:
        """The newest checkpoint that is whole, if the journal leads on from there.

        It does not lead over a change of the program: outputs may already have what the new one made of it.
        """
        faults: list[str] = []
        damaged: list[Entry] = []
        for entry in reversed(self.catalog.line):
            if faults and (entry.record < journal_begins or entry.program != self.newest.program):
                break
            whole = deep or entry.suspect or bool(faults)  # one that was damaged may share its batches
            try:
                checked = check(self.root, entry, deep=whole)
            except DamagedError as error:
                faults += error.faults
                damaged.append(entry)
                continue
            if entry.suspect:
                self._change(entry, suspect=False)
            for passed in damaged:
                self._change(passed, suspect=True)
            self._synced = checked.manifest.batches
            return Restored(checked, whole, faults)
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise DamagedError(
            f"no checkpoint in {self.root} can be used. These files are missing or damaged:\n{listed}\n"
            "Nothing was changed or deleted. Restore these files from a copy, go back to another checkpoint"
            " (see 'penstock checkpoint list'), or start with an empty directory.",
            faults,
        )

    def damage(self, error: DamagedError) -> DamagedError:
        """All that is wrong, now that something was found to be."""
        faults = self.suspect() or list(error.faults)
        listed = "\n".join(f"  {fault}" for fault in faults)
        return DamagedError(
            "the pipeline cannot go on, for files of its checkpoint are missing or damaged:\n"
            f"{listed}\nNothing was changed or deleted. Restore these files from a copy, or stop the pipeline"
            " and start it again: if an older checkpoint is whole it goes on from there, with nothing lost.",
            faults,
        )

    def suspect(self) -> list[str]:
        """A file was found to be damaged: find out which are, and remember which checkpoints have them."""
        faults: dict[str, None] = {}  # checkpoints share batches: each fault once, in order
        for entry in self.catalog.checkpoints:
            try:
                check(self.root, entry, deep=True)
            except DamagedError as error:
                with self._changing:
                    if all(e.id != entry.id for e in self.catalog.checkpoints):
                        continue  # it was let go of meanwhile
                    faults |= dict.fromkeys(error.faults)
                    try:
                        self._change(entry, suspect=True)
                    except StorageError as failure:
                        _log.error("%s", failure)
        return list(faults)

    def verify(self, entry: Entry, progress: Progress = lambda _: None) -> Checked:
        """Look at every byte of a checkpoint, and remember when that was."""
        try:
            checked = check(self.root, entry, deep=True, progress=progress)
        except DamagedError as error:
            if all(e.id != entry.id for e in self.catalog.checkpoints):
                raise StateError(f"checkpoint {entry} was deleted while it was checked") from error
            self._change(entry, suspect=True)
            raise
        self._change(entry, suspect=False, verified=datetime.now(UTC))
        return checked

    def go_back(self, checked: Checked, journal: str) -> Entry:
        """Let the pipeline go on from a checkpoint, with a new journal, which begins with its record.

        A copy of it becomes the newest one; all that were there are put aside.
        """
        with _explained():
            entry = self._write(checked.saved, checked.manifest.traces, checked.changes, None, journal)
        with self._changing:
            aside = tuple(replace(e, aside=True) for e in self.catalog.checkpoints)
            self._save(replace(self.catalog, journal=journal, checkpoints=(*aside, entry)))
        return entry

    # -- letting go -----------------------------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        """Of all checkpoints; `DamagedError` if one cannot be read."""
        return [read_manifest(self.root, entry) for entry in self.catalog.checkpoints]

    def retire(self, retention: int) -> tuple[Batches, Batches]:
        """Let go of all but the newest, the named ones, and those put aside.

        Returns the batches that checkpoints still need, and those that only the others had. If the manifest
        of one that is kept cannot be read, nobody knows what it needs: nothing at all is deleted.
        """
        with self._changing:
            newest = {entry.id for entry in self.retained(retention)}
            kept = [e for e in self.catalog.checkpoints if e.id in newest or e.name is not None or e.aside]
            return self._keep(kept)

    def retained(self, retention: int) -> Sequence[Entry]:
        """The newest ones, damaged ones not counted as long as there are others."""
        whole = [entry for entry in self.catalog.line if not entry.suspect]
        return whole[-retention:] if len(whole) >= retention else self.catalog.line[-retention:]

    def delete(self, entry: Entry) -> tuple[Batches, Batches]:
        """Let go of one checkpoint."""
        with self._changing:
            if entry.id == self._used.id:
                raise StateError(
                    f"checkpoint {entry} is the one that the pipeline goes on from, and is not deleted"
                )
            return self._keep([e for e in self.catalog.checkpoints if e.id != entry.id])

    @property
    def _used(self) -> Entry:
        """The one that a start would go on from: if the newest is damaged, that is an older one."""
        for entry in reversed(self.catalog.line):
            try:
                return check(self.root, entry, deep=entry.suspect).entry
            except DamagedError:
                continue
        return self.newest

    def _keep(self, kept: Sequence[Entry]) -> tuple[Batches, Batches]:
        try:
            needed = {b for entry in kept for b in read_manifest(self.root, entry).batches}
        except DamagedError as error:
            raise DamagedError(
                f"no checkpoint was deleted, for nobody knows which files a kept one needs: {error}. Restore"
                " that file from a copy, or delete that checkpoint.",
                error.faults,
            ) from error
        gone = [entry for entry in self.catalog.checkpoints if entry not in kept]
        had: Batches = set()
        for entry in gone:
            try:
                had |= read_manifest(self.root, entry).batches
            except DamagedError as error:
                _log.warning("the batches of checkpoint %s are left until the next start: %s", entry, error)
        if gone:
            self._save(replace(self.catalog, checkpoints=tuple(kept)))
        failpoint("cleanup.catalogued")
        self._remove_unlisted()
        failpoint("cleanup.removed")
        return needed, had - needed

    def _remove_unlisted(self) -> None:
        """Delete the directories of checkpoints that the catalog does not have."""
        if self._closed:
            return
        listed = {entry.id for entry in self.catalog.checkpoints}
        for path in _listed(self._directory):
            if is_id(path.name) and path.name not in listed:
                shutil.rmtree(path, ignore_errors=True)

    def sweep(self) -> bool:
        """At a start: delete what a crash left, which is what no checkpoint lists.

        Files of names that we do not give are left alone. False if a manifest cannot be read: then everything
        stays, for nobody knows what that checkpoint needs.
        """
        try:
            needed = {batch for manifest in self.manifests() for batch in manifest.batches}
        except DamagedError as error:
            _log.warning("nothing was cleaned up, for nobody knows which files a checkpoint needs: %s", error)
            return False
        self._remove_unlisted()
        for trace in _listed(self.root / "batches"):
            for path in _listed(trace):
                match = _BATCH.fullmatch(path.name)
                if match and (match[3] or (trace.name, path.stem) not in needed):
                    remove_garbage(path)
        for path in _listed(self.root):
            if re.fullmatch(rf"{re.escape(CATALOG_FILE)}\.\d+\.tmp", path.name):
                remove_garbage(path)
        for entry in self.catalog.checkpoints:
            for path in _listed(self._directory / entry.id):
                if re.fullmatch(r".+\.\d+\.tmp", path.name):
                    remove_garbage(path)
        return True


def rebuild(root: Path, *, without_damaged: bool) -> Catalog:
    """A catalog made of the manifests that are there.

    One that is damaged is an error, or with `without_damaged` it is given a name under which clean-up leaves
    it alone; batches that only it needs are lost then.
    """
    _refuse_whole(root / CATALOG_FILE)
    found: list[tuple[Manifest, Entry]] = []
    damaged: list[tuple[Path, str]] = []
    for directory in sorted(_listed(root / "checkpoints")):
        path = directory / MANIFEST_FILE
        if not is_id(directory.name) or not path.exists():
            continue
        try:
            manifest = MANIFEST.read(path)
            found.append((manifest, _entry(manifest, content_of(path))))
        except DamagedError as error:
            damaged.append((directory, str(error)))
    if damaged and not without_damaged:
        faults = [fault for _, fault in damaged]
        raise DamagedError(
            f"{'; '.join(faults)}. Restore that file from a copy, or repair again with --without-damaged to"
            " do without that checkpoint.",
            faults,
        )
    if not found:
        raise StorageError(f"{root} has no checkpoint with a manifest, so no catalog can be made of them.")
    for directory, _ in damaged:
        disk().rename(directory, directory.with_name(f"{directory.name}.damaged"))
    newest = found[-1][0]
    entries = tuple(replace(entry, aside=manifest.journal != newest.journal) for manifest, entry in found)
    catalog = Catalog(newest.pipeline, newest.owner, newest.journal, entries)
    with _explained():
        CATALOG.write(root / CATALOG_FILE, catalog)
    return catalog


def _refuse_whole(path: Path) -> None:
    """A catalog that can be read, or that a newer Penstock can read, is not made again."""
    try:
        catalog = CATALOG.read(path)
    except DamagedError:
        return
    if catalog.checkpoints:
        raise StateError(f"{path} is whole, so there is nothing to repair")


def _entry(manifest: Manifest, content: Content) -> Entry:
    return Entry(
        manifest.checkpoint,
        manifest.at,
        manifest.transaction,
        manifest.record,
        manifest.rows,
        manifest.bytes + content.bytes,
        manifest.program,
        content,
        manifest.name,
    )


def _filler(table: pa.Table) -> Filler:
    def fill(file: Sink) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    return fill


def _listed(directory: Path) -> Iterator[Path]:
    return directory.iterdir() if directory.is_dir() else iter(())


@contextmanager
def _explained() -> Iterator[None]:
    """Say what could not be written."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        raise StorageError(
            f"the checkpoint could not be written: {what}. The pipeline goes on from the one before, and the"
            " next attempt begins anew. Make room on the disk."
        ) from error


@contextmanager
def _explained_reading(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{root} cannot be used: {error.strerror}. Check the disk and its rights."
        ) from error


_REPAIR = (
    "Restore it from a copy, or have it made again from the checkpoints themselves:"
    " penstock checkpoint repair {root}"
)
