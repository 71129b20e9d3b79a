"""What a host is there for: its batch files, whom it belongs to, and its Spark worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from penstock.hosts.messages import Membership
from penstock.storage.files import Content
from penstock.trace.files import BatchFiles


class OwnFiles(BatchFiles):
    """The batch files of this host. The error of a sync that fails says which file it is about."""

    def _sync_one(self, trace: str, name: str, expected: Content) -> None:
        try:
            super()._sync_one(trace, name, expected)
        except OSError as error:
            error.filename = error.filename or str(self.path(trace, name))
            raise


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
        self.files = OwnFiles(directory / "batches")
        self.worker = worker
        """The pid of the Spark worker; None if it does not run."""
        self.over = over
        """Called when the coordinator says that its run is over."""
        self.changing = threading.Lock()
        """Held while files are made durable or deleted."""
        self._member: tuple[Membership, str] | None = None

    def take(self, membership: Membership, token: str) -> None:
        """The host belongs to this incarnation; only who knows the token may ask it for something."""
        self._member = membership, token

    def leave(self) -> None:
        """It belongs to none."""
        self._member = None

    @property
    def member(self) -> tuple[Membership, str] | None:
        """To what it belongs, and the token; None before it has checked in."""
        return self._member

    def __str__(self) -> str:
        who = "this host" if self._member is None else str(self._member[0].host)
        return f"{who} at {self.address}"
