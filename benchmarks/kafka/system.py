"""What each system's process does: `... on_SYSTEM ADDRESS DIRECTORY MESSAGES SOURCE SINK`.

All are warmed up in the same way: what is measured is done once before, in the same process, with a small
topic of its own. So the JVM, the Spark session and Python's workers are there and have run the same code, and
the clock runs from the start of a new pipeline, query or consumer, with an empty directory, until its answer
is complete. Then it is stopped, and another one follows a topic whose messages come one by one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from benchmarks.events import say
from benchmarks.kafka.messages import Row

WARM_UP, EVENTS = "warm-up", "events"
"""The topics that are read from their beginning."""
WARM_UP_MESSAGES = 5_000


class System(Protocol):
    """One way to keep the view up to date."""

    def __init__(self, address: str, directory: Path) -> None: ...

    def ingested(self, topic: str, count: int) -> AbstractContextManager[list[Row]]:
        """Start, and read a topic; the block is entered when that many messages are in the answer."""

    def follow(self, source: str, sink: str) -> None:
        """For ever, write the rows that change with messages of one topic to another one, as JSON."""


class Answer:
    """The rows of the view, which arrive in another thread."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._changed = threading.Condition()

    def update(self, rows: Iterable[Row]) -> None:
        with self._changed:
            self._rows.update({row[0]: row for row in rows})
            self._changed.notify_all()

    def wait(self, count: int, failure: Callable[[], object]) -> list[Row]:
        """The rows, when they count that many messages."""
        with self._changed:
            while sum(n for _, n, _ in self._rows.values()) < count:
                if not self._changed.wait(1) and (problem := failure()):
                    raise RuntimeError(str(problem))
            return sorted(self._rows.values())


def serve(make: Callable[[str, Path], System]) -> None:
    """Do all of it, and tell."""
    _, address, directory, messages, source, sink = sys.argv
    system = make(address, Path(directory))
    with system.ingested(WARM_UP, WARM_UP_MESSAGES):
        say("warm")
    began = time.monotonic()
    with system.ingested(EVENTS, int(messages)) as rows:
        say("ingested", seconds=time.monotonic() - began, rows=rows)
    say("following")  # what comes before it really does is not lost
    system.follow(source, sink)
