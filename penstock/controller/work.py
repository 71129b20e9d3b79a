"""What waits to become a transaction."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.connectors import Split
from penstock.errors import StateError

Input = tuple[str, "pa.Table | Split"]


@dataclass(eq=False)
class Work:
    """Input that belongs to one transaction; an explicit one is never joined with others."""

    inputs: list[Input]
    explicit: bool
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    @property
    def rows(self) -> int:
        return sum(i.num_rows if isinstance(i, pa.Table) else i.rows or 0 for _, i in self.inputs)


class WorkQueue:
    """Work in order of arrival. Input that was queued while a transaction ran becomes one transaction
    together, up to `max_rows`: so throughput grows under load by itself."""

    def __init__(self, max_rows: int, max_queued_rows: int) -> None:
        self._max_rows = max_rows
        self._max_queued_rows = max_queued_rows
        self._queue: deque[Work] = deque()
        self._rows = 0
        self._changed = threading.Condition()
        self._closed = False

    def put(self, work: Work, *, wait: bool = False) -> bool:
        """Queue work; with `wait`, first until there is room. False if the queue was closed."""
        with self._changed:
            while wait and self._rows >= self._max_queued_rows and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._queue.append(work)
            self._rows += work.rows
            self._changed.notify_all()
            return True

    def take(self) -> list[Work]:
        """The work of the next transaction; empty once the queue is closed and drained."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if not self._queue:
                return []
            taken = [self._queue.popleft()]
            rows = taken[0].rows
            while self._queue and not taken[0].explicit and not self._queue[0].explicit:
                rows += self._queue[0].rows
                if rows > self._max_rows:
                    break
                taken.append(self._queue.popleft())
            self._rows -= sum(work.rows for work in taken)
            self._changed.notify_all()
            return taken

    def pending(self) -> Sequence[Work]:
        with self._changed:
            return list(self._queue)

    def close(self, *, drop: bool) -> None:
        """Take nothing more; with `drop` forget what is queued."""
        with self._changed:
            self._closed = True
            if drop:
                for work in self._queue:
                    work.error = StateError("the pipeline was stopped before the rows were in the views")
                    work.done.set()
                self._queue.clear()
                self._rows = 0
            self._changed.notify_all()
