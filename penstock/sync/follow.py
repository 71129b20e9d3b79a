"""Following a place in an object store: fetch what is newer, and at the end take over.

A storage directory that follows is marked so before it has anything, and nothing runs in it before the mark
is gone. A start that takes its state from an object store follows once and takes over at once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from penstock.checkpoint.model import Entry
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import DamagedError, NotOwnerError, SyncError
from penstock.failpoints import failpoint
from penstock.storage.files import explained
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop
from penstock.sync.model import CLAIM, CLAIM_FILE
from penstock.sync.ownership import Ownership, is_same, read_catalog, read_claim, read_owner
from penstock.sync.parts import Several
from penstock.sync.pull import Pull, begin_journal
from penstock.sync.remote import Found, find

_log = logging.getLogger("penstock")

_KEPT = 2
_ATTEMPTS = 5


class Source(StrEnum):
    """Where a storage directory has its state from."""

    LOCAL = "storage directory"
    BUCKET = "bucket"
    READ_BUCKET = "read_bucket"
    NOWHERE = "nowhere"


@dataclass(frozen=True)
class Followed:
    """The newest checkpoint that was fetched."""

    source: Source
    checkpoint: str
    transaction: int
    at: datetime


class Following:
    """One storage directory that gets its state from the places of a configuration."""

    def __init__(
        self,
        store: CheckpointStore,
        config: SyncConfig,
        pipeline: str,
        registered: str = "",
        several: Several | None = None,
    ) -> None:
        self.copied = Copied()
        self.config = config
        self._stop = Stop()
        self._store = store
        self._pipeline = pipeline
        self._registered = registered
        self._several = several
        self._bucket = Location(config, config.bucket)
        self._read_bucket = None if config.read_bucket is None else Location(config, config.read_bucket)

    def interrupt(self) -> None:
        """Let a fetch that is under way end soon, and take nothing over any more."""
        self._stop.ask()

    def go_on(self) -> None:
        """After `interrupt`: fetch again."""
        self._stop = Stop()

    @property
    def is_marked(self) -> bool:
        """Whether the directory only follows."""
        return read_claim(self._store.root).standby

    def fetch(self) -> Followed | None:
        """Fetch the newest checkpoint if the directory does not have it; None if there is none."""
        if (known := self._known()) is not None:
            return known
        damaged: set[str] = set()
        while True:
            source, found = self._find(damaged)
            if found is None:
                return None
            try:
                self._pull(source, found)
                break
            except DamagedError as error:
                if self.config.wanted != "latest":
                    raise
                _log.warning("checkpoint %s is passed over: %s", found.entry, error)
                damaged.add(found.entry.id)
        if len(self._store.catalog.checkpoints) > _KEPT:
            self._store.retire(_KEPT)
            self._store.sweep()
        return _followed(source, found.entry)

    def _known(self) -> Followed | None:
        """The newest checkpoint of the bucket, if it is here: then one look was enough."""
        if self.config.wanted != "latest" or self._store.read() is None:
            return None
        catalog, _ = read_catalog(self._bucket)
        if catalog is None or catalog.id != self._store.catalog.owner:
            return None
        here = {entry.id for entry in self._store.catalog.checkpoints}
        newest = catalog.checkpoints[-1:]
        return next((_followed(Source.BUCKET, entry) for entry in newest if entry.id in here), None)

    def _pull(self, source: Source, found: Found) -> None:
        self._mark(True)
        # What is only seeded from elsewhere is another pipeline, and its outputs are others.
        owner = found.catalog.id if source is Source.BUCKET else self._seeded()
        self.copied = Copied()
        pull = Pull(self._store, self.config, self._stop, self._several)
        pull.run(found, self._pipeline, owner, self.copied)

    def _find(self, without: Collection[str]) -> tuple[Source, Found | None]:
        wanted = self.config.wanted
        if wanted is None:
            return Source.NOWHERE, None
        found = find(self._bucket, wanted, self.config, without)
        if found is not None or self._read_bucket is None:
            return Source.BUCKET, found
        return Source.READ_BUCKET, find(self._read_bucket, wanted, self.config, without)

    def _seeded(self) -> str:
        catalog = self._store.read()
        if catalog is not None:
            return catalog.owner
        return uuid.uuid4().hex if self._several is None else self._several.id()

    def take_over(self) -> Followed | None:
        """Fetch what is newest, become the one who may write, and let something run in the directory.

        Whoever wrote before may have pushed a last checkpoint until he was fenced: it is fetched too. If
        anything fails, the directory follows as before.
        """
        followed = self.fetch()
        for _ in range(_ATTEMPTS):
            if self._store.read() is None:
                break  # there is nothing to take over
            self._stop.check()
            self._ownership().take_over()
            newest = self.fetch()
            if newest == followed:
                break
            followed = newest
        else:
            raise SyncError(
                f"{self._bucket}: others push checkpoints faster than they can be fetched. Find out who, and"
                " try again.",
                bucket=self._bucket.bucket,
            )
        if self._store.read() is not None:
            directory = self._store.root / self._store.catalog.journal
            with explained(f"{directory} cannot be begun", "Check the disk and its rights."):
                begin_journal(directory, self._store.newest.record)
            failpoint("sync.activated")
        self._mark(False)
        return followed

    def _ownership(self) -> Ownership:
        owner = self._store.catalog.owner
        return Ownership(self._bucket, self._store.root, self._pipeline, owner, self._registered)

    def _mark(self, standby: bool) -> None:
        claim = read_claim(self._store.root)
        if claim.standby != standby:
            CLAIM.write(self._store.root / CLAIM_FILE, replace(claim, standby=standby))

    # -- a start that does not wait -------------------------------------------------------------

    def bring(self) -> Source:
        """Have something to start from: what is here, else what is in the bucket, else in the read_bucket."""
        catalog = self._store.read()
        if catalog is not None and not self.is_marked:
            self._ownership().refuse_if_fenced()
            return Source.LOCAL
        if catalog is None:
            self._refuse_others()
        followed = self.take_over()
        if followed is not None:
            _log.warning(
                "the pipeline starts from checkpoint %s (transaction %d) of the %s",
                followed.checkpoint,
                followed.transaction,
                followed.source,
            )
            return followed.source
        if self._store.read() is not None:
            return Source.LOCAL
        self.refuse_nothing()
        return Source.NOWHERE

    def refuse_nothing(self) -> None:
        """Whoever wants no start with empty tables gets none."""
        if self.config.fail_if_no_checkpoint and self._store.read() is None:
            places = " nor ".join(str(p) for p in (self._bucket, self._read_bucket) if p is not None)
            raise SyncError(
                f"there is no checkpoint ({self.config.wanted}) in the storage directory nor in {places}, and"
                " fail_if_no_checkpoint is set. Push one, correct start_from_checkpoint, or leave"
                " fail_if_no_checkpoint out to start with empty tables.",
                bucket=self._bucket.bucket,
                status=404,
            )

    def _refuse_others(self) -> None:
        """A start never takes over from a pipeline of another name; a standby that is activated does."""
        if self.config.wanted is None:
            return
        owner = read_owner(self._bucket)
        if owner is not None and not is_same(owner, self._pipeline, self._registered):
            raise NotOwnerError(
                f"{self._bucket} belongs to the pipeline {owner.pipeline}, and {self._pipeline} may not start"
                " from it. To begin with that pipeline's state, name its place as read_bucket and give this"
                " one another bucket; to take its place, start as a standby and activate it.",
                bucket=self._bucket.bucket,
            )


def _followed(source: Source, entry: Entry) -> Followed:
    return Followed(source, entry.id, entry.transaction, entry.at)
