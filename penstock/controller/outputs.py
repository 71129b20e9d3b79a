"""Each output connector has a thread of its own and gets every transaction once, in order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from penstock.connectors import NOTHING, Output
from penstock.controller.retry import pauses
from penstock.errors import ConnectorError, PenstockError, StorageError, UnreachableError
from penstock.failpoints import failpoint

_log = logging.getLogger("penstock")

MAX_WAITING = 64
"""So many transactions may wait for a slow output before it holds the pipeline up."""

MAX_HELD_BYTES = 256 << 20
"""So much may wait for a copy of the state, see `OutputRunner.limit`."""


class Status(StrEnum):
    """How an output connector is doing."""

    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"


@dataclass
class OutputRunner:
    """Delivers the changes of a view to one output."""

    view: str
    output: Output
    owner: str
    schema: pa.Schema
    failed: Callable[[PenstockError], None]
    delivered: int = NOTHING
    """The last transaction that it has."""
    least: int = NOTHING
    """The transaction up to which it must have everything, for the journal begins after it."""
    most: int | None = None
    """The transaction that the journal ended with at the start: it cannot have more."""
    limit: int | None = None
    """It gets nothing after this transaction: the state up to there is safe in an object store, and if this
    machine is lost, what comes after is computed again, perhaps from other steps. None: there is no limit."""
    needs: str | None = None
    """With a limit: the least id of a checkpoint that must be safe before it gets anything, since no older
    one knows it or what it is to get."""
    joins: bool = False
    """Whether it is new to a pipeline that has rows, and has to be given those first."""
    carries: bool = False
    """Whether it has rows of the program before, and has to be told what became of them."""
    status: Status = Status.RUNNING
    last_error: str | None = None
    errors: int = 0
    rows: int = 0
    error: PenstockError | None = None
    opened: bool = False
    _waiting: deque[tuple[int, pa.Table]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _unbound: bool = False
    _stopped: bool = False
    _dropped: bool = False

    @property
    def name(self) -> str:
        return self.output.name

    def open(self, known: int) -> None:
        """Ask the output what it has; `known` is what is known without it.

        An output that cannot be reached now is asked again before it is given anything.
        """
        self.delivered = known
        try:
            self._open()
        except UnreachableError as error:
            self._trouble(error)

    def _open(self) -> None:
        has = self.output.open(self.owner, self.schema)
        if self.output.remembers:
            self.delivered = has
        self.opened = True

    def gap(self) -> ConnectorError:
        """Why it cannot be given what it lacks."""
        if self.delivered >= self.least:
            return ConnectorError(
                f"the output {self.name} has transactions up to {self.delivered}, and the pipeline ran"
                " without it since: nobody can tell what it missed. Empty it to have it begin with the rows"
                " of its view at the next start, or give it another name."
            )
        return ConnectorError(
            f"the output {self.name} has transactions up to {self.delivered}, and those up to"
            f" {self.least} are no longer in the journal: it was left out for a while, emptied or restored"
            " from a copy. Empty it to have it begin with the rows of its view at the next start, or give it"
            " another name."
        )

    def ahead(self) -> StorageError:
        """Why it cannot go on with what it has."""
        return StorageError(
            f"the output {self.name} has transaction {self.delivered}, and the journal ends with transaction"
            f" {self.most}: the pipeline went back to an earlier checkpoint, or a part of the journal is"
            " missing. Empty the output to have it begin with the rows of its view, or restore the storage"
            " directory from a copy that has everything."
        )

    def put(self, transaction: int, changes: pa.Table) -> None:
        """Queue a transaction's changes."""
        with self._changed:
            if self.error is None or not self._waiting:  # what a failed output lacks is in the journal
                self._waiting.append((transaction, changes))
            self._changed.notify_all()

    def wait_for_room(self, *, held: bool = True) -> None:
        """Wait while too many transactions are queued; not `held`: unless all of them have to wait."""
        with self._changed:
            while self._is_full and (held or not self.is_held) and not self._unbound and self.error is None:
                self._changed.wait()

    @property
    def _is_full(self) -> bool:
        if not self.is_held:
            return len(self._waiting) >= MAX_WAITING
        return sum(int(changes.nbytes) for _, changes in self._waiting) >= MAX_HELD_BYTES

    @property
    def is_held(self) -> bool:
        """Whether all that waits has to wait."""
        if not self._waiting or self.limit is None:
            return False
        return self.needs is not None or self._waiting[0][0] > self.limit

    def release(self, checkpoint: str, transaction: int) -> None:
        """Let it have everything up to this transaction, if there is a limit: this checkpoint is safe."""
        with self._changed:
            if self.limit is not None:
                self.limit = max(self.limit, transaction)
                if self.needs is not None and checkpoint >= self.needs:
                    self.needs = None
            self._changed.notify_all()

    def waiting(self) -> list[tuple[int, pa.Table]]:
        """The changes that it does not have yet."""
        with self._changed:
            return [(number, changes) for number, changes in self._waiting if number > self.delivered]

    @property
    def behind(self) -> int:
        """How many transactions wait for it."""
        return len(self._waiting)

    def settle(self) -> None:
        """Wait until it has everything that it may have, or is in trouble."""
        with self._changed:
            while self._waiting and not self.is_held and self.status is Status.RUNNING and not self._dropped:
                self._changed.wait()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """What the thread does."""
        try:
            while (item := self._next()) is not None and self._deliver(*item):
                with self._changed:
                    self._waiting.popleft()
                    self._changed.notify_all()
        except PenstockError as error:
            self._fail(error)
        except Exception as error:
            _log.exception("connector %s failed", self.name)
            self._fail(ConnectorError(f"connector {self.name} failed: {error}"))

    def _fail(self, error: PenstockError) -> None:
        with self._changed:
            self.error = error
            self.status = Status.FAILED
            self.last_error = str(error)
            self._changed.notify_all()
        self.failed(error)

    def _next(self) -> tuple[int, pa.Table] | None:
        with self._changed:
            while (not self._waiting or self.is_held) and not self._stopped:
                self._changed.wait()
            if self._dropped or not self._waiting or self.is_held:
                return None
            return self._waiting[0]

    def _deliver(self, transaction: int, changes: pa.Table) -> bool:
        """Give a transaction to the output; False if there is no time to try again."""
        for pause in pauses():
            try:
                if not self.opened:
                    self._open()
                    if self.delivered < self.least:
                        raise self.gap()
                    if self.most is not None and self.delivered > self.most:
                        raise self.ahead()
                if transaction > self.delivered:
                    failpoint("output.before")
                    self.output.write(transaction, changes)
                    failpoint("output.after")
                    self.delivered = transaction
                    self.rows += changes.num_rows
                self.status = Status.RUNNING
                return True
            except UnreachableError as error:
                self._trouble(error)
                with self._changed:
                    self._changed.notify_all()
                    if not self._stopped:
                        self._changed.wait(pause)
                    if self._stopped:
                        return False
        return False

    def _trouble(self, error: UnreachableError) -> None:
        self.status = Status.RETRYING
        self.errors += 1
        if self.last_error != str(error):
            _log.warning("connector %s is tried again: %s", self.name, error)
        self.last_error = str(error)

    def unbind(self) -> None:
        """Let any number of transactions wait: nobody waits for room while the pipeline stops."""
        with self._changed:
            self._unbound = True
            self._changed.notify_all()

    def stop(self, *, drop: bool) -> None:
        """Let the thread end once everything is delivered, or at once. What an output that cannot be reached
        does not get now it gets from the journal after the next start."""
        with self._changed:
            self._stopped = True
            self._dropped = drop
            self._changed.notify_all()

    def stats(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "status": str(self.status),
            "transaction": self.delivered,
            "behind": self.behind,
            "rows": self.rows,
            "errors": self.errors,
            "last_error": self.last_error,
        }
