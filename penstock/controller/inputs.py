"""Each input connector has a thread of its own, so that one that waits keeps no other from its work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from penstock.connectors import Input
from penstock.controller.retry import pauses
from penstock.controller.work import Work, WorkQueue
from penstock.errors import ConnectorError, PenstockError, UnreachableError
from penstock.journal.arrival import Arrival
from penstock.sql import Connector

_log = logging.getLogger("penstock")

MAX_POLL_ROWS = 1_000_000
"""Most rows that an input hands out at once."""

_LOOK_SECONDS = 0.02


class Status(StrEnum):
    """How an input connector is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"  # for the inputs that its `start_after` names
    RETRYING = "retrying"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True)
class InputSettings:
    """What the configuration says about any input, whatever its transport."""

    labels: frozenset[str] = frozenset()
    start_after: frozenset[str] = frozenset()
    paused: bool = False
    max_queued_records: int | None = None
    max_batch_size: int = MAX_POLL_ROWS

    @classmethod
    def of(cls, connector: Connector) -> InputSettings:
        config = connector.config
        after = _labels(connector, "start_after")
        paused = config.get("paused", False)
        if not isinstance(paused, bool):
            raise ConnectorError(f"connector {connector.name}: 'paused' is true or false, not {paused!r}")
        queued, batch = _count(connector, "max_queued_records"), _count(connector, "max_batch_size")
        return cls(
            _labels(connector, "labels"), after, paused, queued, min(batch or MAX_POLL_ROWS, MAX_POLL_ROWS)
        )


def _labels(connector: Connector, name: str) -> frozenset[str]:
    value = connector.config.get(name) or []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
        raise ConnectorError(f"connector {connector.name}: '{name}' is a list of labels, not {value!r}")
    return frozenset(found)


def _count(connector: Connector, name: str) -> int | None:
    value = connector.config.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConnectorError(f"connector {connector.name}: '{name}' is a number of at least 1, not {value!r}")
    return value


@dataclass
class InputRunner:
    """Polls one input until it ends, fails or is stopped."""

    table: str
    input: Input
    settings: InputSettings
    queue: WorkQueue
    failed: Callable[[PenstockError], None]
    others: Sequence[InputRunner] = ()
    status: Status = Status.RUNNING
    last_error: str | None = None
    errors: int = 0
    rows: int = 0
    bad: int = 0
    shown: list[Mapping[str, Any]] = field(default_factory=list)
    paused: bool = False
    held: bool = False  # while the whole pipeline is paused
    given: Work | None = None  # the last
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _series: int = 0
    _target: tuple[Any] | None = None
    _durable: tuple[Any] | None = None
    _released: tuple[Any] | None = None
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopped: bool = False

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def finished(self) -> bool:
        return self.status in (Status.ENDED, Status.FAILED)

    def run(self) -> None:
        """What the thread does."""
        while not self._stopped:
            series = self._series
            try:
                self._feed()
            except PenstockError as error:
                self._fail(error)
            except Exception as error:
                _log.exception("connector %s failed", self.name)
                self._fail(ConnectorError(f"connector {self.name} failed: {error}"))
            while self._is(series):  # until it is set back, or stopped
                self._wait(None)

    def _fail(self, error: PenstockError) -> None:
        self.status = Status.FAILED
        self.last_error = str(error)
        self.failed(error)

    def _feed(self) -> None:
        """Poll until there is a reason not to."""
        grown = pauses()
        while not self._stopped:
            with self._lock:
                series, target, self._target = self._series, self._target, None
                durable, self._durable = self._durable, None
                released, self._released = self._released, None
            if target is not None:
                self.input.seek(target[0])
            if durable is not None:
                self.input.acknowledge(durable[0])
            if released is not None:
                self.input.release(released[0])
            if self.paused or self.held or self._waits():
                self.status = Status.WAITING if self._waits() else Status.PAUSED
                self._wait(_LOOK_SECONDS)
                continue
            try:
                splits = self.input.poll(self.settings.max_batch_size)
            except UnreachableError as error:
                self.status = Status.RETRYING
                self.errors += 1
                if self.last_error != str(error):
                    _log.warning("connector %s is tried again: %s", self.name, error)
                self.last_error = str(error)
                self._wait(next(grown))
                continue
            self.status = Status.RUNNING
            grown = pauses()
            if splits:
                work = Work([Arrival(self.table, splits, self.name, self.input.position)])
                limit = self.settings.max_queued_records
                if self.queue.put(work, limit=limit, still=partial(self._is, series)):
                    self.given = work
                else:
                    self._wait(_LOOK_SECONDS)
            elif self.input.ended:
                self.status = Status.ENDED
                return
            else:
                self._wait(_LOOK_SECONDS)

    def _is(self, series: int) -> bool:
        """Whether what was polled in a series is still wanted."""
        return series == self._series and not self._stopped

    def _waits(self) -> bool:
        return any(
            self.settings.start_after & other.settings.labels and other.status is not Status.ENDED
            for other in self.others
            if other is not self
        )

    def _wait(self, seconds: float | None) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def rewind(self, position: Any) -> list[Work]:
        """Go back: what was given since is forgotten, and will be given again. Returns what waited of it."""
        with self._lock:
            self._target = (position,)
            self._series += 1  # what is on its way into the queue is wanted no longer
        gone = self.queue.discard(self.name)
        self.status = Status.RUNNING
        self._wake.set()
        return gone

    def acknowledge(self, position: Any) -> None:
        """What was given up to this position is durable."""
        with self._lock:
            self._durable = (position,)

    def end(self) -> None:
        """Tell the source what became durable last, once the thread has ended, and let go of it."""
        if self._durable is not None:
            self.input.acknowledge(self._durable[0])
        self.input.close()

    def release(self, position: Any) -> None:
        """Nothing before this position will be read again."""
        with self._lock:
            self._released = (position,)

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self._wake.set()

    def hold(self, held: bool) -> None:
        self.held = held
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        self.queue.wake()

    def stats(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "status": str(self.status),
            "rows": self.rows,
            "queued": self.queue.queued(self.name),
            "bad_records": self.bad,
            "bad_records_shown": list(self.shown),
            "errors": self.errors,
            "last_error": self.last_error,
            "ended": self.status is Status.ENDED,
            **self.input.stats(),
        }
