"""Pushes of a running pipeline: one at a time, by request or by the clock, and what became of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from penstock.checkpoint.model import Entry
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import FencedError, PenstockError, StateError
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop
from penstock.sync.ownership import Ownership
from penstock.sync.parts import Parts
from penstock.sync.push import Push
from penstock.sync.remote import remote_checkpoints

_log = logging.getLogger("penstock")

_LOOK_SECONDS = 5.0
"""Whether another run took over is looked at this often."""


@dataclass(frozen=True)
class Failure:
    """A push that failed."""

    checkpoint: str
    error: str
    periodic: bool
    at: datetime


@dataclass(frozen=True)
class Status:
    """What became of pushes so far."""

    success: str | None = None
    """The last checkpoint that somebody asked to be pushed, and that was."""
    periodic: str | None = None
    """The last one that was pushed by the clock."""
    failure: Failure | None = None
    """The last failure, until a later push succeeds."""
    pushes: int = 0
    failures: int = 0
    bytes: int = 0
    last_push: datetime | None = None


@dataclass
class _Running:
    """A push that is under way, and how it ended."""

    entry: Entry
    periodic: bool
    copied: Copied = field(default_factory=Copied)
    error: PenstockError | None = None
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Safe:
    """What of the state of a directory is in the object store."""

    transaction: int = -1
    """Up to which it is; -1: nothing is."""
    newest: bool = False
    """Whether the newest checkpoint of the directory is there."""


def safe(store: CheckpointStore, config: SyncConfig) -> Safe:
    """What the object store has of the state of a directory."""
    common = in_both(store, config)
    newest = any(entry.id == store.newest.id for entry in common)
    return Safe(max((entry.transaction for entry in common), default=-1), newest)


def in_both(store: CheckpointStore, config: SyncConfig) -> list[Entry]:
    """The checkpoints in the object store that are also here, oldest first: others may be of a history that
    was gone back from."""
    remote = remote_checkpoints(Location(config, config.bucket))
    if store.read() is None:
        return []
    here = {entry.id for entry in store.catalog.line}
    return [entry for entry in remote if entry.id in here]


class Syncer:
    """Copies the checkpoints of a pipeline. `pushed` is told of each, `fenced` if another run took over."""

    def __init__(
        self,
        store: CheckpointStore,
        config: SyncConfig,
        pipeline: str,
        registered: str = "",
        *,
        pushed: Callable[[Entry], None] = lambda _: None,
        fenced: Callable[[FencedError], None] = lambda _: None,
        parts: Parts | None = None,
    ) -> None:
        self.config = config
        self.location = Location(config, config.bucket)
        self.ownership = Ownership(self.location, store.root, pipeline, store.catalog.owner, registered)
        self.status = Status()
        self._store = store
        self._stop = Stop()
        self._push = Push(store.root, self.ownership, config, self._stop, parts)
        self._keeps = parts is not None
        """Hosts that lost their batches get them from there, so the journal must lead on from there."""
        self._tell_pushed = pushed
        self._tell_fenced = fenced
        self._changing = threading.Lock()
        self._running: _Running | None = None
        self._pushed: str | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to push by the clock, if that is wanted, and to look whether another run took over."""
        threading.Thread(target=self._by_the_clock, name="penstock sync", daemon=True).start()

    def close(self, wait_s: float = 30.0) -> None:
        """End the push that is under way, and begin no more."""
        self._closing.set()
        self._stop.ask()
        with self._changing:
            running = self._running
        if running is not None:
            running.ended.wait(wait_s)

    def push(self, entry: Entry | None = None) -> Entry:
        """Begin to push a checkpoint, the newest if none is named; returns which. Another call joins it."""
        return self._begin(entry or self._store.newest, periodic=False).entry

    def push_and_wait(self, entry: Entry | None = None) -> Entry:
        """The same, and wait for its end; raises what went wrong."""
        running = self._begin(entry or self._store.newest, periodic=False)
        running.ended.wait()
        if running.error is not None:
            raise running.error
        return running.entry

    def push_last(self) -> None:
        """At the end: push the newest checkpoint, if they are pushed by the clock. A failure is told."""
        if self.config.push_interval is None or self._store.newest.id == self._pushed:
            return
        if (running := self._running) is not None:
            running.ended.wait()
        try:
            self._begin(self._store.newest, periodic=True).ended.wait()
        except PenstockError as error:
            _log.error("the last checkpoint was not pushed: %s", error)

    def _by_the_clock(self) -> None:
        interval = self.config.push_interval
        due = time.monotonic() + (interval or 0)
        while not self._closing.wait(min(interval or _LOOK_SECONDS, _LOOK_SECONDS)):
            try:
                if interval is not None and time.monotonic() >= due and self._running is None:
                    due = time.monotonic() + interval
                    if self._store.newest.id != self._pushed:
                        self._begin(self._store.newest, periodic=True)
                self.ownership.refuse_if_fenced()
            except FencedError as error:
                self._tell_fenced(error)
                return
            except PenstockError as error:  # the store does not answer, or somebody was faster with a push
                _log.debug("%s", error)
            except Exception:
                _log.exception("looking after the object store failed; it is tried again")

    def _begin(self, entry: Entry, *, periodic: bool) -> _Running:
        with self._changing:
            if self._closing.is_set():
                raise StateError("the pipeline is stopping, and pushes no checkpoint any more")
            if self._running is not None:
                return self._joined(self._running, entry, periodic)
            self._running = running = _Running(entry, periodic)
            failure = self.status.failure
            if not periodic and failure is not None and failure.checkpoint == entry.id:
                self.status = replace(self.status, failure=None)  # how this attempt goes is not known yet
            try:
                threading.Thread(target=self._run, args=(running,), name="penstock push", daemon=True).start()
            except BaseException:
                self._running = None
                raise
        return running

    @staticmethod
    def _joined(running: _Running, entry: Entry, periodic: bool) -> _Running:
        if running.entry.id != entry.id:
            raise StateError(
                f"checkpoint {running.entry} is being pushed ({running.copied}); push another one when"
                " that is done"
            )
        running.periodic = running.periodic and periodic
        return running

    def _run(self, running: _Running) -> None:
        entry = running.entry
        try:
            with self._store.in_use(entry):
                self._push.run(entry, running.copied)
                if self._keeps:  # before it may be let go of
                    self._store.pushed = max(entry.id, self._store.pushed or "")
        except PenstockError as error:
            running.error = error
        except Exception as error:  # nothing may end the thread without a word
            running.error = StateError(f"the push failed: {type(error).__name__}: {error}")
            running.error.__cause__ = error
        with self._changing:
            self._running = None
            self.status = self._after(running)
        running.ended.set()
        if running.error is not None:
            _log.error("checkpoint %s was not pushed to %s: %s", entry.id, self.location, running.error)
        if running.error is None:
            self._tell_pushed(entry)
        elif isinstance(running.error, FencedError):
            self._tell_fenced(running.error)

    def _after(self, running: _Running) -> Status:
        """The status after a push."""
        before, id_, now = self.status, running.entry.id, datetime.now(UTC)
        if running.error is not None:
            failure = Failure(id_, str(running.error), running.periodic, now)
            return replace(before, failure=failure, failures=before.failures + 1)
        self._pushed = id_
        return Status(
            success=before.success if running.periodic else id_,
            periodic=id_ if running.periodic else before.periodic,
            pushes=before.pushes + 1,
            failures=before.failures,
            bytes=before.bytes + running.copied.bytes,
            last_push=now,
        )

    def stats(self) -> dict[str, Any]:
        """As plain JSON, for people and metrics."""
        status, running = self.status, self._running
        failure = status.failure
        return {
            "location": self.location.label,
            "success": status.success,
            "periodic": status.periodic,
            "failure": None
            if failure is None
            else {"uuid": failure.checkpoint, "error": failure.error, "at": failure.at.isoformat()},
            "pushes": status.pushes,
            "failures": status.failures,
            "bytes": status.bytes,
            "last_push": None if status.last_push is None else status.last_push.isoformat(),
            "running": [] if running is None else [running.entry.id],
            "pushing": None
            if running is None
            else {"uuid": running.entry.id, "progress": str(running.copied)},
        }
