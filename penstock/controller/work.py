"""What waits to be taken into a transaction, and what clients ask for in between."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from penstock.errors import StateError
from penstock.journal.arrival import Arrival
from penstock.journal.record import API


@dataclass(eq=False)
class Work:
    """Input that takes effect together; if it is `alone`, nothing else joins its transaction."""

    arrivals: Sequence[Arrival]
    alone: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    transaction: int | None = None
    """The one that it was taken into."""

    @property
    def rows(self) -> int:
        return sum(arrival.rows for arrival in self.arrivals)

    @property
    def connector(self) -> str:
        return self.arrivals[0].connector if self.arrivals else API


class Ask(StrEnum):
    """What a client may ask of the thread that runs transactions."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLL_BACK = "roll back"
    RETRY = "retry"
    SKIP = "skip"
    CONNECTOR = "connector"
    TAKE_OVER = "take over"


def drop(works: Sequence[Work]) -> None:
    """Say of what a connector gave that it is in no transaction."""
    for work in works:
        work.error = StateError(f"what the connector {work.connector} gave was dropped; it gives it again")
        work.done.set()


@dataclass(eq=False)
class Request:
    """Something a client asked for, in its place among the input."""

    ask: Ask
    number: int | None = None
    note: dict[str, Any] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    answer: int = -1


@dataclass(frozen=True)
class Limits:
    """How much becomes one transaction, how long to wait for it, and how much may wait."""

    max_transaction_rows: int = 1_000_000
    max_queued_rows: int = 2_000_000
    min_batch_size_records: int = 0
    max_buffering_delay_usecs: int = 0
    max_gathering_delay_usecs: int = 0


LIMITS = tuple(field.name for field in fields(Limits))

GATHERED_ROWS = 1_000
"""More than so many rows wait for no other senders."""
_MOST_MISSED = 63
"""So many transactions at most wait for nobody after one that waited in vain."""


class WorkQueue:
    """Work and requests in order of arrival. Input that was queued while a transaction ran becomes one
    transaction together, up to `max_transaction_rows`: so throughput grows under load by itself."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._queue: deque[Work | Request] = deque()
        self._rows: Counter[str] = Counter()
        self._since = 0.0
        self._changed = threading.Condition()
        self._closed = False
        self._taken = False
        self._nudged = self._dropped = False
        self._senders = 0
        self._began = 0.0
        self._expected = 0
        self._missed = 0
        self._alone = 0
        self._expected_until = 0.0

    def put(
        self,
        work: Work,
        *,
        limit: int | None = None,
        still: Callable[[], bool] = lambda: True,
        waits: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Queue work once its connector has fewer than `limit` rows waiting.

        False if the queue was closed meanwhile, if the work is `still` wanted no longer, or if there is no
        room and nobody `waits` for it.
        """
        most = self._limits.max_queued_rows if limit is None else limit
        with self._changed:
            while self._rows[work.connector] >= most and not self._closed and still():
                if not waits():
                    return False
                self._changed.wait()
            if self._closed or not still():
                return False
            # Rows may be 0 where a connector does not know how many it gave.
            if not any(isinstance(item, Work) for item in self._queue):
                self._since = time.monotonic()
            self._queue.append(work)
            self._rows[work.connector] += work.rows
            self._changed.notify_all()
            return True

    def ask(self, request: Request) -> bool:
        """Queue a request; False if the queue is closed."""
        with self._changed:
            if self._closed:
                return False
            self._queue.append(request)
            self._changed.notify_all()
            return True

    def take(self) -> list[Work] | Request | None:
        """The next request, or the work of the next step (after a `nudge` perhaps none); None once the queue
        is closed and empty."""
        with self._changed:
            while not self._ripe():
                self._changed.wait(self._patience() if self._queue else None)
            nudged, self._nudged = self._nudged, False
            if not self._queue:
                self._taken = nudged and not self._closed
                return [] if self._taken else None
            self._taken = True
            head = self._queue.popleft()
            if isinstance(head, Request):
                return head
            self._began = time.monotonic()
            taken = [head]
            rows = head.rows
            while self._queue and not head.alone:
                following = self._queue[0]
                if isinstance(following, Request) or following.alone:
                    break
                rows += following.rows
                if rows > self._limits.max_transaction_rows:
                    break
                self._queue.popleft()
                taken.append(following)
            for work in taken:
                self._rows[work.connector] -= work.rows
            self._senders = sum(work.connector == API for work in taken)
            self._changed.notify_all()
            return taken

    def nudge(self) -> None:
        """Have the next `take` return, if with nothing: there may be something to do without input."""
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def give_back(self, works: Sequence[Work]) -> None:
        """Put work that was taken back to where it was, to be taken next."""
        with self._changed:
            if self._dropped:
                for work in works:
                    work.error = StateError("the pipeline was stopped before this was done")
                    work.done.set()
                return
            for work in reversed(works):
                self._queue.appendleft(work)
                self._rows[work.connector] += work.rows
            self._changed.notify_all()

    def take_ahead(self) -> Request | None:
        """A request that need not wait for the work before it, if there is one. Only the opening of a
        transaction has to: what was sent before is no part of it."""
        with self._changed:
            for place, item in enumerate(self._queue):
                if isinstance(item, Request):
                    if item.ask is Ask.BEGIN and place:
                        return None
                    self._queue.remove(item)
                    self._taken = True
                    return item
            return None

    def take_request(self) -> Request | None:
        """The next request, while all input waits; None once the queue is closed and has no request."""
        with self._changed:
            while True:
                for item in self._queue:
                    if isinstance(item, Request):
                        self._queue.remove(item)
                        self._taken = True
                        return item
                if self._closed:
                    return None
                self._changed.wait()

    def finish(self) -> None:
        """What was taken last is done with."""
        with self._changed:
            self._taken = False
            now = time.monotonic()
            longest = min(2 * (now - self._began), self._limits.max_gathering_delay_usecs / 1e6)
            if self._senders < self._expected:
                # They send at their own pace: wait for nobody for a while, longer each time.
                self._missed = min(2 * self._missed + 1, _MOST_MISSED)
                self._alone = self._missed
            elif self._expected:
                self._missed = 0
            self._expected = 0 if self._alone else self._senders + len(self._queue)
            self._alone = max(0, self._alone - 1)
            self._expected_until = now + longest
            self._senders = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being worked on."""
        with self._changed:
            return not self._queue and not self._taken

    @property
    def busy(self) -> bool:
        """Whether what was taken last is not done with."""
        return self._taken

    @property
    def waits(self) -> bool:
        """Whether there is work that does not wait for more on purpose."""
        with self._changed:
            return any(isinstance(item, Work) for item in self._queue) and self._ripe()

    @property
    def dropped(self) -> bool:
        """Whether it was closed, and what was queued forgotten."""
        return self._dropped

    @property
    def rows(self) -> int:
        """How many rows wait."""
        with self._changed:
            return self._rows.total()

    def discard(self, connector: str) -> list[Work]:
        """Forget what a connector gave, and return that: the connector will give it again."""
        with self._changed:
            gone = [item for item in self._queue if isinstance(item, Work) and item.connector == connector]
            self._queue = deque(item for item in self._queue if item not in gone)
            self._rows[connector] = 0
            self._changed.notify_all()
        return gone

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def queued(self, connector: str) -> int:
        return self._rows[connector]

    def _ripe(self) -> bool:
        """Whether there is something to take: a request, enough rows, or rows that waited long enough."""
        if self._closed or self._nudged:
            return True
        if not self._queue:
            return False
        plain = all(isinstance(item, Work) and not item.alone for item in self._queue)
        return not (plain and self._patience() > 0)

    def _patience(self) -> float:
        """How many seconds the rows in the queue may still wait for company: for that of more rows, and for
        those whose rows were in the last transaction, who are about to send more."""
        until = 0.0
        if self._rows.total() < self._limits.min_batch_size_records:
            until = self._since + self._limits.max_buffering_delay_usecs / 1e6
        if len(self._queue) < self._expected and 0 < self._rows.total() == self._rows[API] <= GATHERED_ROWS:
            until = max(until, self._expected_until)
        return max(0.0, until - time.monotonic())

    def close(self, *, drop: bool) -> None:
        """Take nothing more; with `drop` forget what is queued."""
        with self._changed:
            self._closed = True
            self._dropped = self._dropped or drop
            if drop:
                for item in self._queue:
                    item.error = StateError("the pipeline was stopped before this was done")
                    item.done.set()
                self._queue.clear()
                self._rows.clear()
            self._changed.notify_all()
