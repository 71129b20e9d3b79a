"""The checkpoints of one storage directory: take them, come back to one, let them go.

The order in which a checkpoint becomes durable: its batches; its state files; the manifest, which lists all
of them; the catalog, which lists the manifest. Letting go is the other way round, see `cleanup`.
So whatever the catalog lists is whole, and a crash leaves no more than files that nothing lists.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from penstock.checkpoint.catalog import CatalogFile, writing
from penstock.checkpoint.check import Checked, Progress, check
from penstock.checkpoint.cleanup import keep, sweep
from penstock.checkpoint.identity import is_id, new_id
from penstock.checkpoint.model import (
    CHANGES,
    MANIFEST,
    MANIFEST_FILE,
    STATE,
    STATE_FILE,
    Batches,
    Carried,
    Catalog,
    Entry,
    Manifest,
    Pending,
    Saved,
    Traces,
    Waiting,
)
from penstock.errors import DamagedError, HostError, StateError, StorageError
from penstock.failpoints import failpoint
from penstock.storage.files import make_directory

_log = logging.getLogger("penstock")


@dataclass(frozen=True)
class Restored:
    """The checkpoint that a pipeline goes on from."""

    checked: Checked
    deep: bool
    """Whether every byte of its batches was looked at."""
    passed_over: Sequence[str] = ()
    """Why newer ones could not be used."""
    damaged: Sequence[Entry] = ()
    """The newer ones."""


class CheckpointStore(CatalogFile):
    """The catalog of a storage directory, and the files that it leads to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._in_use: Counter[str] = Counter()
        self.pushed: str | None = None
        """The last checkpoint that hosts could get their batches of from an object store: it is kept."""

    @contextmanager
    def in_use(self, entry: Entry) -> Iterator[None]:
        """Let go of nothing that a checkpoint has, while it is copied."""
        with self.changing:
            if all(e.id != entry.id for e in self.catalog.checkpoints):
                raise StateError(f"there is no checkpoint {entry} any more")
            self._in_use[entry.id] += 1
        try:
            yield
        finally:
            with self.changing:
                self._in_use[entry.id] -= 1

    # -- taking one -----------------------------------------------------------------------------

    def begin(self, pipeline: str, owner: str, saved: Saved) -> None:
        """Begin a catalog, with the state before the first transaction.

        An empty one comes first, so that a crash leaves no checkpoint without a catalog.
        """
        with writing():
            make_directory(self.directory)
        self.save(Catalog(pipeline, owner))
        self.commit(saved, {})

    def commit(
        self, saved: Saved, traces: Traces, changes: Sequence[Pending | Carried] = (), name: str | None = None
    ) -> Entry:
        """Make a checkpoint durable as a whole, and list it; `changes` are what outputs still have to get."""
        with writing():
            entry = self._write(saved, traces, changes, name, self.catalog.journal)
        with self.changing:
            self.save(replace(self.catalog, checkpoints=(*self.catalog.checkpoints, entry)))
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
        directory = self.directory / id_
        self.files.sync(traces)
        failpoint("checkpoint.batches")
        make_directory(directory)
        files = {}
        waiting = {}
        carried = {}
        for number, item in enumerate(changes):
            file = f"changes-{number}.arrow"
            files[file] = CHANGES.write(directory / file, item.changes, durable=True)
            if isinstance(item, Carried):
                carried[file] = item.view
            else:
                waiting[file] = Waiting(item.output, item.transaction)
        described = replace(saved, waiting=waiting, carried=carried)
        files[STATE_FILE] = STATE.write(directory / STATE_FILE, described)
        failpoint("checkpoint.files")
        before = self.catalog.line[-1:]
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
            since=next((entry.since for entry in before if entry.program == saved.meaning), id_),
            hosts=self.files.hosts,
            processed=dict(saved.statistics.get("processed", {})),
        )
        content = MANIFEST.write(directory / MANIFEST_FILE, manifest)
        failpoint("checkpoint.manifest")
        return Entry.of(manifest, content)

    def _refuse_name(self, name: str | None) -> None:
        if name is None:
            return
        if is_id(name) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise StateError(
                f"{name!r} cannot be the name of a checkpoint: a name has letters, digits, '.', '_' and '-'"
            )
        if any(entry.name == name for entry in self.catalog.checkpoints):
            raise StateError(f"there is a checkpoint {name} already; choose another name, or delete that one")

    # -- coming back to one ---------------------------------------------------------------------

    def restore(self, *, deep: bool) -> Restored:
        """The newest checkpoint that a start can go on from; those that are damaged are remembered."""
        restored = self._look(deep=deep)
        for entry in restored.damaged:
            self.change(entry, suspect=True)
        if restored.checked.entry.suspect:
            self.change(restored.checked.entry, suspect=False)
        self.files.are_synced(restored.checked.manifest.traces)
        return restored

    def _look(self, *, deep: bool) -> Restored:
        """The same, and nothing is written."""
        faults: list[str] = []
        damaged: list[Entry] = []
        for entry in self.candidates:
            whole = deep or entry.suspect or bool(faults)  # one that was damaged may share its batches
            try:
                return Restored(check(self.root, entry, deep=whole, files=self.files), whole, faults, damaged)
            except DamagedError as error:
                faults += error.faults
                damaged.append(entry)
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
                check(self.root, entry, deep=True, files=self.files)
            except HostError as error:  # what was found before is enough to go by
                _log.error("checkpoint %s could not be checked: %s", entry, error)
            except DamagedError as error:
                with self.changing:
                    if all(e.id != entry.id for e in self.catalog.checkpoints):
                        continue  # it was let go of meanwhile
                    faults |= dict.fromkeys(error.faults)
                    try:
                        self.change(entry, suspect=True)
                    except StorageError as failure:
                        _log.error("%s", failure)
        return list(faults)

    def verify(self, entry: Entry, progress: Progress = lambda _: None) -> Checked:
        """Look at every byte of a checkpoint, and remember when that was."""
        try:
            checked = check(self.root, entry, deep=True, progress=progress, files=self.files)
        except DamagedError as error:
            if all(e.id != entry.id for e in self.catalog.checkpoints):
                raise StateError(f"checkpoint {entry} was deleted while it was checked") from error
            self.change(entry, suspect=True)
            raise
        self.change(entry, suspect=False, verified=datetime.now(UTC))
        return checked

    def go_back(self, checked: Checked, journal: str) -> Entry:
        """Let the pipeline go on from a checkpoint, with a new journal, which begins with its record.

        A copy of it becomes the newest one; all that were there are put aside.
        """
        with writing():
            entry = self._write(checked.saved, checked.manifest.traces, checked.changes, None, journal)
        with self.changing:
            aside = tuple(replace(e, aside=True) for e in self.catalog.checkpoints)
            self.save(replace(self.catalog, journal=journal, checkpoints=(*aside, entry)))
        return entry

    # -- letting go -----------------------------------------------------------------------------

    def retire(self, retention: int) -> tuple[Batches, Batches]:
        """Let go of all but the newest, the named ones, those put aside and those in use.

        Returns the batches that checkpoints still need, and those that only the others had.
        """
        with self.changing:
            in_use = {id_ for id_ in self._in_use if self._in_use[id_]}
            kept = {entry.id for entry in self.kept(retention)} | in_use
            return keep(
                self,
                [e for e in self.catalog.checkpoints if e.id in kept or e.name is not None or e.aside],
            )

    def kept(self, retention: int) -> Sequence[Entry]:
        """Those that the journal must lead on from: the newest, and what is copied, or being copied, to the
        object store."""
        newest = self.retained(retention)
        more = [e for e in self.catalog.line if e.id == self.pushed or self._in_use[e.id]]
        return [*newest, *(entry for entry in more if entry not in newest)]

    def delete(self, entry: Entry) -> tuple[Batches, Batches]:
        """Let go of one checkpoint, but not of the one that a start would go on from."""
        with self.changing:
            try:
                used = self._look(deep=False).checked.entry
            except DamagedError:
                used = self.newest  # its files may be restored from a copy
            if entry.id == used.id:
                raise StateError(
                    f"checkpoint {entry} is the one that the pipeline goes on from, and is not deleted"
                )
            if self._in_use[entry.id]:
                raise StateError(
                    f"checkpoint {entry} is being copied to the object store; delete it afterwards"
                )
            return keep(self, [e for e in self.catalog.checkpoints if e.id != entry.id])

    def sweep(self) -> bool:
        """At a start: delete what no checkpoint needs; False if that is not known."""
        return sweep(self)
