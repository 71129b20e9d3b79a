"""What a host is there for: its batch files, whom it belongs to, and its Spark worker."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.hosts.messages import Membership
from penstock.hosts.part import OwnPart
from penstock.storage.files import Content
from penstock.trace.files import BatchFiles, Copies
from penstock.trace.host import COPIES


class OwnFiles(BatchFiles):
    """The batch files of this host, and its copies of others' batches. The error of a sync that fails says
    which file it is about."""

    def __init__(self, storage: Path) -> None:
        super().__init__(storage / "batches")
        self._copies = Copies(storage / COPIES)
        self._since = time.time()

    def _sync_one(self, trace: str, name: str, expected: Content) -> None:
        """What an earlier process left may not be what was written: the machine may have crashed, or a sync
        failed. It is compared, and written again."""
        path = self.path(trace, name)
        try:
            if path.stat().st_mtime < self._since:
                self._doubtful.add((trace, name))
            super()._sync_one(trace, name, expected)
        except OSError as error:
            error.filename = error.filename or str(path)
            raise

    def remove(self, batches: Iterable[tuple[str, str]]) -> None:
        gone = list(batches)
        super().remove([batch for batch in gone if self.path(*batch).exists()])
        self._copies.remove(gone)

    def discard(self, transaction: int, run: str) -> None:
        super().discard(transaction, run)
        self._copies.discard(transaction, run)

    def forget_copies(self) -> None:
        """They were not made durable: a new incarnation fetches what it needs."""
        shutil.rmtree(self._copies.directory, ignore_errors=True)


class Duty:
    """A host's, as long as its process lives."""

    def __init__(
        self,
        directory: Path,
        address: str,
        *,
        worker: Callable[[], int | None] = lambda: None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        self.files = OwnFiles(directory)
        self.part = OwnPart(self.files)
        """Of checkpoints in an object store."""
        self.worker = worker
        """The pid of the Spark worker; None if it does not run."""
        self.over = over
        """Called when the coordinator says that its run is over."""
        self.changing = threading.Lock()
        """Held while files are made durable or deleted."""
        self._member: tuple[Membership, str] | None = None

    def take(self, membership: Membership, token: str) -> None:
        """The host belongs to this incarnation; only who knows the token may ask it for something. What the
        one before asked for is done then."""
        with self.changing:
            self._member = membership, token

    def leave(self) -> None:
        """It belongs to none, and begins to copy nothing any more."""
        self._member = None
        self.part.stop()

    @property
    def member(self) -> tuple[Membership, str] | None:
        """To what it belongs, and the token; None before it has checked in."""
        return self._member

    def __str__(self) -> str:
        who = "this host" if self._member is None else str(self._member[0].host)
        return f"{who} at {self.address}"
