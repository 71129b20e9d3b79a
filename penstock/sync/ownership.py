"""Whose a place in an object store is, and who of its pipeline may write there.

The owner's record has an epoch that grows with every holder. A holder is a storage directory: it writes the
catalog only by compare-and-swap against a version with its own epoch, and whoever takes over puts its epoch
into the record and then into the catalog. So from then on no write of the holder before can succeed, however
late it comes.

A store may ignore conditions and write all the same. It is tried out, not trusted: there, a place can be used
by the one who has it, and is never taken over.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.errors import FencedError, NotOwnerError, SyncError
from penstock.failpoints import failpoint
from penstock.storage.document import Document
from penstock.storage.location import Location, Version, honours_conditions
from penstock.sync.model import (
    CATALOG_KEY,
    CLAIM,
    CLAIM_FILE,
    OWNER,
    OWNER_KEY,
    REMOTE_CATALOG,
    Claim,
    Owner,
    RemoteCatalog,
)

_ATTEMPTS = 10


class Ownership:
    """One storage directory's side of it; `id` is what its pipeline is known by."""

    def __init__(self, location: Location, root: Path, pipeline: str, id_: str, registered: str = "") -> None:
        self.location = location
        self.pipeline = pipeline
        self.id = id_
        self.registered = registered
        self._root = root
        self._honours: bool | None = None

    # -- what the directory remembers -----------------------------------------------------------

    @property
    def claim(self) -> Claim:
        return read_claim(self._root)

    # -- using the place ------------------------------------------------------------------------

    def hold(self) -> Owner:
        """Make sure that this directory may write; raises who may, if it may not."""
        claim = self.claim
        for _ in range(_ATTEMPTS):
            owner, version = self._owner()
            if owner is None:
                if claim.location == self.location.label and claim.epoch:
                    raise self._lost(claim)
                # Read again in any case: a store that ignores conditions may have taken another's meanwhile.
                self._put(None, self._mine(claim, self._epoch_of_catalog() + 1))
                continue
            if owner.holder != claim.holder:
                if claim.location == self.location.label and claim.epoch:
                    raise self._fenced(owner)
                if not self._was_given_up(owner):
                    self._refuse_others(owner)
                    raise self._fenced(owner)
                self._refuse_if_conditions_are_ignored(owner)
                self._replace(owner, version, self._mine(claim, owner.epoch + 1))
                continue
            if owner.pipeline != self.pipeline:  # it was renamed
                self._put(version, replace(owner, pipeline=self.pipeline, at=_now()))
            self._remember(claim, owner)
            return owner
        raise self._contended()

    def refuse_if_fenced(self) -> None:
        """Raise if somebody else has taken over since this directory last wrote."""
        claim = self.claim
        owner, _ = self._owner()
        if owner is None or owner.holder == claim.holder:
            return
        # A place may be spelled otherwise than when it was claimed; then the id tells.
        if owner.id == self.id or (claim.location == self.location.label and claim.epoch):
            raise self._fenced(owner)

    def take_over(self) -> Owner:
        """Become the holder, whoever is: from now on, nothing that the one before writes is seen."""
        claim = self.claim
        for _ in range(_ATTEMPTS):
            owner, version = self._owner()
            if owner is None or owner.holder == claim.holder:
                owner = self.hold()
                break
            if not self._is_empty():
                self._refuse_others(owner)
            self._refuse_if_conditions_are_ignored(owner)
            mine = self._mine(claim, owner.epoch + 1)
            if self._replace(owner, version, mine):
                owner = mine
                break
        else:
            raise self._contended()
        self._remember(claim, owner)
        self._stamp(owner)
        return owner

    def _replace(self, owner: Owner, version: Version | None, mine: Owner) -> bool:
        """Become the holder in place of another, and put that into the catalog too; False if he changed.

        If he had pushed something of his own meanwhile, he gets the place back.
        """
        if not self._put(version, mine):
            return False
        failpoint("sync.taken-over")
        try:
            self._stamp(mine)
        except NotOwnerError:
            _, now = self._owner()
            self._put(now, replace(owner, epoch=mine.epoch + 1))
            raise
        return True

    def _mine(self, claim: Claim, epoch: int) -> Owner:
        return Owner(self.pipeline, self.id, claim.holder, epoch, _now(), self.registered)

    def _is_empty(self) -> bool:
        catalog, _ = self.catalog()
        return catalog is None or not catalog.checkpoints

    def _was_given_up(self, owner: Owner) -> bool:
        """Whether a run of this pipeline claimed the place and was lost before it had pushed anything."""
        others = "" not in (owner.registered, self.registered) and owner.registered != self.registered
        same = is_same(owner, self.pipeline, self.registered) and not others
        return same and owner.id != self.id and self._is_empty()

    def _epoch_of_catalog(self) -> int:
        """That of a catalog whose owner's record is gone; 0 if there is none. Another's is refused."""
        catalog, _ = self.catalog()
        if catalog is None:
            return 0
        self._refuse_others(Owner(catalog.pipeline, catalog.id, "", catalog.epoch, _now()))
        return catalog.epoch

    # -- the catalog ----------------------------------------------------------------------------

    def catalog(self) -> tuple[RemoteCatalog | None, Version | None]:
        """The checkpoints of the place; None if none was ever pushed."""
        return read_catalog(self.location)

    def save(self, owner: Owner, catalog: RemoteCatalog, before: Version | None) -> None:
        """Put another catalog in place of the one that was read; `FencedError` if that is not ours to do."""
        data = REMOTE_CATALOG.encode(catalog)
        if before is None:
            done = self.location.create(CATALOG_KEY, data)
        else:
            done = self.location.replace(CATALOG_KEY, data, before)
        if done:
            return
        self.hold()  # raises, if somebody else took over
        raise SyncError(
            f"{self.location}: {CATALOG_KEY} was changed by somebody else while it was written, though this"
            f" pipeline holds the place (epoch {owner.epoch}). It is tried again.",
            bucket=self.location.bucket,
            key=CATALOG_KEY,
            status=412,
        )

    def refuse_newer(self, owner: Owner, catalog: RemoteCatalog) -> None:
        """A catalog of a later epoch is not ours to change."""
        if catalog.epoch > owner.epoch:
            found, _ = self._owner()
            raise self._fenced(found or owner)

    def _stamp(self, owner: Owner) -> None:
        """Put the new epoch into the catalog, so that nobody can replace the version that he read before."""
        for _ in range(_ATTEMPTS):
            catalog, version = self.catalog()
            if catalog is not None and catalog.epoch >= owner.epoch:
                return
            if catalog is not None and catalog.checkpoints:
                self._refuse_others(Owner(catalog.pipeline, catalog.id, "", catalog.epoch, _now()))
            listed = () if catalog is None else catalog.checkpoints
            data = REMOTE_CATALOG.encode(RemoteCatalog(owner.pipeline, owner.id, owner.epoch, listed))
            if version is None:
                done = self.location.create(CATALOG_KEY, data)
            else:
                done = self.location.replace(CATALOG_KEY, data, version)
            if done:
                return
        raise self._contended()

    # -- the record -----------------------------------------------------------------------------

    def _owner(self) -> tuple[Owner | None, Version | None]:
        found = self.location.read(OWNER_KEY)
        if found is None:
            self.location.check()
            return None, None
        return _parsed(OWNER, found, self.location, OWNER_KEY), found

    def _put(self, version: Version | None, owner: Owner) -> bool:
        data = OWNER.encode(owner)
        if version is None:
            return self.location.create(OWNER_KEY, data)
        return self.location.replace(OWNER_KEY, data, version)

    def _remember(self, claim: Claim, owner: Owner) -> None:
        now = replace(claim, location=self.location.label, epoch=owner.epoch)
        if now != claim:
            CLAIM.write(self._root / CLAIM_FILE, now)

    def _refuse_others(self, owner: Owner) -> None:
        if owner.id != self.id and owner.pipeline == self.pipeline:
            raise NotOwnerError(
                f"{self.location} has checkpoints of {owner.pipeline} from before its storage was emptied,"
                " and a run that began anew may not write among them. Set start_from_checkpoint to go on from"
                " there, or give it another bucket or folder, or empty this one.",
                bucket=self.location.bucket,
                key=OWNER_KEY,
            )
        if owner.id != self.id:
            raise NotOwnerError(
                f"{self.location} belongs to the pipeline {owner.pipeline}, and {self.pipeline} may not"
                " write there. Give this pipeline another bucket or folder; to begin with that pipeline's"
                " state, name its place as read_bucket.",
                bucket=self.location.bucket,
                key=OWNER_KEY,
            )

    def _refuse_if_conditions_are_ignored(self, owner: Owner) -> None:
        if self._honours is None:
            self._honours = honours_conditions(self.location)
        if not self._honours:
            raise SyncError(
                f"{self.location} ignores conditional writes (If-Match, If-None-Match), so it cannot be taken"
                f" over from the run of {owner.pipeline} that holds it: both could write. Use a store that"
                " honours them; or make sure that the other run has ended for good, delete"
                f" {OWNER_KEY} there, and try again.",
                bucket=self.location.bucket,
                key=OWNER_KEY,
            )

    def _fenced(self, owner: Owner) -> FencedError:
        return FencedError(
            f"another run of {owner.pipeline} took over {self.location} at {owner.at:%Y-%m-%d %H:%M:%S} UTC"
            f" (epoch {owner.epoch}), and this one may not go on: both would write to the same outputs. Let"
            " the other run; to use this storage directory again as a standby, empty it first.",
            bucket=self.location.bucket,
            key=OWNER_KEY,
        )

    def _lost(self, claim: Claim) -> SyncError:
        return SyncError(
            f"{self.location}: {OWNER_KEY} is gone, and this pipeline wrote there before (epoch"
            f" {claim.epoch}): the place was emptied, or another one has its name. Use another bucket or"
            f" folder, or delete {CLAIM_FILE} in the storage directory to begin anew there.",
            bucket=self.location.bucket,
            key=OWNER_KEY,
            status=404,
        )

    def _contended(self) -> SyncError:
        return SyncError(
            f"{self.location}: others change {OWNER_KEY} all the time. Find out who, and try again.",
            bucket=self.location.bucket,
            key=OWNER_KEY,
            status=412,
        )


def is_same(owner: Owner, pipeline: str, registered: str) -> bool:
    """Whether the owner is the pipeline of this name, or one that was renamed to it."""
    return owner.pipeline == pipeline or (registered != "" and owner.registered == registered)


def follows(root: Path) -> bool:
    """Whether a storage directory only follows an object store: nothing may run in it yet."""
    path = root / CLAIM_FILE
    return path.exists() and CLAIM.read(path).standby


def read_claim(root: Path) -> Claim:
    """What a storage directory remembers; a new one is given a name to hold places by."""
    path = root / CLAIM_FILE
    if not path.exists():
        CLAIM.write(path, Claim(secrets.token_hex(16)))
    return CLAIM.read(path)


def read_catalog(location: Location) -> tuple[RemoteCatalog | None, Version | None]:
    """The checkpoints of a place; None if there is nothing, which is asked for twice."""
    found = location.read(CATALOG_KEY)
    if found is None:
        location.check()
        return None, None
    return _parsed(REMOTE_CATALOG, found, location, CATALOG_KEY), found


def read_owner(location: Location) -> Owner | None:
    """Whose a place is; None if it is nobody's."""
    found = location.read(OWNER_KEY)
    return None if found is None else _parsed(OWNER, found, location, OWNER_KEY)


def _parsed(document: Document[Any], found: Version, location: Location, key: str) -> Any:
    return document.parse(found.data, f"{location}/{key}")


def _now() -> datetime:
    return datetime.now(UTC)
