"""Each output connector has a thread of its own and gets every transaction once, in order."""

from __future__ import annotations

import logging
import threading
import time
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

MAX_KEPT = 1_000
"""So many may wait for one that cannot be reached, if they are not too large either; see `MAX_HELD_BYTES`."""

STALL_SECONDS = 30.0
"""An output that gets on by no transaction for so long, though there is one for it, is stalled."""


def is_long(since: float) -> bool:
    """Whether something that has not moved since then is stalled."""
    return time.monotonic() - since >= STALL_SECONDS


_LOOK_SECONDS = 0.05

MAX_HELD_BYTES = 256 << 20
"""So much may wait for an output that cannot be reached, for a copy of the state, or for another replica; see
`limit` and `follows`."""


class Status(StrEnum):
    """How an output connector is doing."""

    RUNNING = "running"
    RETRYING = "retrying"
    FOLLOWING = "following"  # another replica writes it
    HELD = "held"  # what it lacks waits for a checkpoint in the object store
    STALLED = "stalled"  # it gets nothing, though there is something for it
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
    unsure: bool = False
    """Whether the journal has later transactions than `delivered` for it, which it may have or not."""
    most: int | None = None
    """The transaction that the journal ended with at the start: it cannot have more."""
    limit: int | None = None
    """It gets nothing after this transaction: the state up to there is safe in an object store, and if this
    machine is lost, what comes after is computed again, perhaps from other steps. None: there is no limit."""
    needs: str | None = None
    """With a limit: the least id of a checkpoint that must be safe before it gets anything, since no older
    one knows it or what it is to get."""
    follows: bool = False
    """Whether another replica gives it everything: then what it lacks is only kept."""
    led: bool = False
    """Whether one replica at a time writes it: then what another one does to it is no reason to give up."""
    may_write: Callable[[], bool] = lambda: True
    """Asked before it is given anything."""
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
    computed: int = NOTHING
    """The last transaction that was run here: it has that, or it waits, or nothing of it changed the view."""
    written: int = NOTHING
    """The last transaction that another generation wrote, which may not have been run here yet."""
    _passed: int = NOTHING
    """The last transaction up to which everything that changed the view was put."""
    begun: bool = False
    """Whether this replica does not begin with the first transaction of all: an output that has nothing needs
    more than the changes that come."""
    hydrated: int = 0
    """The first transaction that this replica has: what came before it cannot be given to an output."""
    whole: bool = False
    """Whether it needs all rows of its view before any change is of use to it."""
    wants: Callable[[], None] = lambda: None
    """Called when it waits for a transaction, to be given all rows with."""
    internal: bool = False
    """Whether no program asked for it: the group's own copy of a table."""
    _whole_at: int | None = None
    _since: float | None = None
    """Since when it lacks something and got nothing."""
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
        if self.follows:
            return
        try:
            self._open()
        except UnreachableError as error:
            self._trouble(error)

    def _open(self) -> None:
        has = self.output.open(self.owner, self.schema)
        if has < self.delivered and (why := self.output.forgot) is not None:
            if self.unsure or self.led:
                raise ConnectorError(
                    f"the output {self.name} had transactions up to {self.delivered} at least, and {why}"
                )
            has = self.delivered
        if self.output.remembers:
            self.delivered = has
        self.opened = True
        if self.output.is_stale or (self.output.remembers and has == NOTHING and self.begun):
            with self._changed:
                if not self._waiting or self._waiting[0][0] != self._whole_at:
                    self.whole = True
                    self._waiting.clear()
        elif self.whole and has != NOTHING:
            self.whole = False  # another replica of this generation gave it all rows
        elif self.hydrated and self.output.advances and has < self.hydrated:
            self.least = self.hydrated
            raise self.gap()

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
            if self.whole:
                return  # it will be given all rows
            if self.error is None or not self._waiting:  # what a failed output lacks is in the journal
                self._waiting.append((transaction, changes))
            self._wait_from_now(moved=False)
            self._changed.notify_all()

    def put_whole(self, transaction: int, rows: pa.Table) -> None:
        """Queue all rows of the view, as they are after a transaction."""
        with self._changed:
            self.whole, self._whole_at = False, transaction
            self._waiting.append((transaction, rows))
            self._wait_from_now(moved=False)
            self._changed.notify_all()

    @property
    def wants_whole(self) -> bool:
        """Whether it has to be given all rows, since nothing else will do."""
        return self.whole and not self.follows and self.opened

    def pass_on(self, transaction: int) -> None:
        """A transaction did not change the view."""
        if self.output.advances:
            with self._changed:
                self._passed = transaction
                self._wait_from_now(moved=False)
                self._changed.notify_all()

    def wait_for_room(self, seconds: float | None = None) -> bool:
        """Wait while too many transactions are queued, but not for longer; returns whether there is room."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.is_full, seconds)

    def keep_up(self) -> None:
        """Wait while too many transactions are queued, as long as it can take them."""
        with self._changed:
            self._changed.wait_for(lambda: not self.is_full or self.is_held or self._is_away)

    @property
    def _is_away(self) -> bool:
        """Whether it cannot be given anything now."""
        return self.status is Status.RETRYING or not self.opened

    @property
    def _is_full(self) -> bool:
        if not self.is_held and not self._is_away:
            return len(self._waiting) >= MAX_WAITING
        if not self.is_held and len(self._waiting) >= MAX_KEPT:
            return True
        return sum(int(changes.nbytes) for _, changes in self._waiting) >= MAX_HELD_BYTES

    @property
    def is_held(self) -> bool:
        """Whether all that waits has to wait."""
        if not self._waiting:
            return False
        if self.follows:
            return True
        if self.limit is None:
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

    def lead(self, leads: bool) -> None:
        """Give it what it lacks from now on, or leave that to another replica."""
        with self._changed:
            self.follows = not leads
            self.opened = False  # another replica may have written it meanwhile: it is asked what it has
            self._changed.notify_all()

    def reached(self, transaction: int) -> None:
        """Another replica has given it everything up to a transaction."""
        with self._changed:
            if self.follows and transaction > self.delivered:
                self.delivered = transaction
                while self._waiting and self._waiting[0][0] <= transaction:
                    self._waiting.popleft()
                self._wait_from_now(moved=True)
                self._changed.notify_all()

    def _wait_from_now(self, *, moved: bool) -> None:
        lacks = bool(self._waiting) or (self.output.advances and self._passed > self.delivered)
        if moved or not lacks or self._since is None:
            self._since = time.monotonic() if lacks else None

    @property
    def stalled(self) -> str | None:
        """Why it gets nothing, though there has been something for it for a while; None if all is well, if it
        failed, or if it is held on purpose."""
        with self._changed:
            since = self._since
            if since is None or not is_long(since) or self.error is not None:
                return None
            if self._is_held_on_purpose:
                return None
            if self.follows:
                why = "the replica that leads gives it nothing"
            elif self.status is Status.RETRYING:
                why = self.last_error or "it cannot be reached"
            else:
                why = "the connector does not come back from writing"
        has = "nothing yet" if self.delivered == NOTHING else f"nothing after transaction {self.delivered}"
        return f"it has {has}: {why}"

    @property
    def _is_held_on_purpose(self) -> bool:
        return self.is_held and not self.follows

    def frontier(self, transaction: int) -> int:
        """The transaction up to which it has everything; at most this one, which it was given or does not
        need."""
        with self._changed:
            if self.whole:  # who follows has all rows, and gives them when it leads
                return transaction if self.follows else min(transaction, self.delivered)
            if self._waiting:
                first = self._waiting[0][0]
                return min(transaction, self.delivered if first == self._whole_at else first - 1)
            behind = self.output.advances and self._passed > self.delivered
            return min(transaction, self.delivered) if behind else transaction

    def waiting(self) -> list[tuple[int, pa.Table]]:
        """The changes that it does not have yet."""
        with self._changed:
            return [(number, changes) for number, changes in self._waiting if number > self.delivered]

    def lacks(self, transaction: int) -> bool:
        """Whether it does not have all of a transaction yet."""
        with self._changed:
            return self.whole or any(self.delivered < number <= transaction for number, _ in self._waiting)

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
                    if self._waiting and self._waiting[0][1] is item[1] and self.delivered >= item[0]:
                        self._waiting.popleft()
                    if self.delivered >= item[0]:
                        self._wait_from_now(moved=True)
                    self._changed.notify_all()
        except PenstockError as error:
            self._fail(error)
        except Exception as error:
            _log.exception("connector %s failed", self.name)
            self._fail(ConnectorError(f"connector {self.name} failed: {error}"))
        if self._dropped:
            self.output.close()  # whoever took over may need it

    def _fail(self, error: PenstockError) -> None:
        with self._changed:
            self.error = error
            self.status = Status.FAILED
            self.last_error = str(error)
            self._changed.notify_all()
        self.failed(error)

    def _next(self) -> tuple[int, pa.Table | None] | None:
        """What to deliver: a transaction's changes, or None for changes if there are none up to it."""
        with self._changed:
            while (not self._waiting or self.is_held) and not self._stopped and not self._may_advance:
                if self.follows:
                    self.output.close()  # whoever writes it now may need it
                if self._must_ask:
                    return (NOTHING, None)
                self._changed.wait()
            if self._dropped:
                return None
            if self._waiting and not self.is_held:
                return self._waiting[0]
            return (self._passed, None) if self._may_advance else None

    @property
    def _may_advance(self) -> bool:
        reached = self.limit is None or (self._passed <= self.limit and self.needs is None)
        due = not self._waiting and self._passed > self.delivered
        return due and reached and not self.joins and not self.follows and not self.whole

    @property
    def _must_ask(self) -> bool:
        """Whether it is not known yet what it has, and it needs all rows if that is nothing."""
        return self.whole and not self.follows and not self.opened and not self._stopped

    def _deliver(self, transaction: int, changes: pa.Table | None) -> bool:
        """Give a transaction to the output; False if there is no time to try again."""
        for pause in pauses():
            try:
                if not self.may_write():
                    with self._changed:
                        self._changed.wait(_LOOK_SECONDS)
                        return not self._stopped  # it comes again, when that is settled
                if not self.opened:
                    self._open()
                    if self.delivered < self.least:
                        raise self.gap()
                    if self.most is not None and self.delivered > self.most:
                        raise self.ahead()
                    if self.whole:
                        self.wants()
                        return True
                if transaction == self._whole_at and transaction <= self.delivered and self.output.is_stale:
                    return self._begin_again()
                if transaction > self.delivered and changes is None:
                    self.output.advance(transaction)
                    self.delivered = transaction
                elif transaction > self.delivered and changes is not None:
                    failpoint("output.before")
                    if transaction == self._whole_at:
                        self.output.write_whole(transaction, changes)
                        if self.output.is_stale:
                            return self._begin_again()
                    else:
                        self.output.write(transaction, changes)
                    failpoint("output.after")
                    self.delivered = transaction
                    self.rows += changes.num_rows
                self.status = Status.RUNNING
                return True
            except ConnectorError as error:
                if not self.led and not isinstance(error, UnreachableError):
                    raise
                self._trouble(error)
                if self.led:
                    self.opened = False
                with self._changed:
                    self._changed.notify_all()
                    if not self._stopped:
                        self._changed.wait(pause)
                    if self._stopped:
                        return False
        return False

    def _begin_again(self) -> bool:
        """All rows came too late: the generation before has written something after that transaction."""
        with self._changed:
            self.whole = True
            self._waiting.clear()
        self.wants()
        return True

    def _trouble(self, error: ConnectorError) -> None:
        with self._changed:
            self.status = Status.RETRYING
            self._changed.notify_all()
        self.errors += 1
        if self.last_error != str(error):
            _log.warning("connector %s is tried again: %s", self.name, error)
        self.last_error = str(error)

    def unbind(self, unbound: bool = True) -> None:
        """Let any number of transactions wait: nobody waits for room while the pipeline stops."""
        with self._changed:
            self._unbound = unbound
            self._changed.notify_all()

    @property
    def is_full(self) -> bool:
        """Whether the pipeline waits for it."""
        with self._changed:
            return self._is_full and not self._unbound and self.error is None

    def stop(self, *, drop: bool) -> None:
        """Let the thread end once everything is delivered, or at once. What an output that cannot be reached
        does not get now it gets from the journal after the next start."""
        with self._changed:
            self._stopped = True
            self._dropped = drop
            self._changed.notify_all()

    def _shown(self, stalled: str | None) -> Status:
        """How it is doing. One that lacks something for long is never said to run."""
        if self.error is not None:
            return Status.FAILED
        if stalled is not None:
            return Status.STALLED
        if self.follows:
            return Status.FOLLOWING
        return Status.HELD if self.is_held else self.status

    def stats(self, stalled: str | None = None) -> dict[str, Any]:
        """`stalled`: why nothing comes that it could get."""
        reason = self.stalled or stalled
        return {
            "view": self.view,
            "status": str(self._shown(reason)),
            "stalled": reason,
            "transaction": self.delivered,
            "computed": self.computed,
            "written": max(self.delivered, self.written),
            "behind": self.behind,
            "rows": self.rows,
            "errors": self.errors,
            "last_error": self.last_error,
        }
