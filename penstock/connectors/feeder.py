"""Drives the inputs of a pipeline: asks each in turn for splits and passes them on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.connectors.interface import Input, Split

Submit = Callable[[str, list[Split]], None]
"""Takes a table's new splits. It blocks while too much is queued: that is the back-pressure."""

MAX_POLL_ROWS = 1_000_000
"""Most rows that one input hands out in one round, so that no input starves the others."""

_PAUSE_SECONDS = 0.02


def pause() -> None:
    """What to do when no input has anything new."""
    time.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True)
class _Feed:
    table: str
    input: Input


class Feeder:
    """Polls the inputs round robin until all ended or it is stopped.

    It holds the splits of one poll at most: the next poll happens after `submit` took the last ones. `idle`
    is called after a round without anything new, and should wait a moment.
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[Input]],
        submit: Submit,
        idle: Callable[[], None] = pause,
        *,
        max_poll_rows: int = MAX_POLL_ROWS,
    ) -> None:
        self._feeds = [_Feed(table, source) for table, sources in inputs.items() for source in sources]
        self._active = list(self._feeds)
        self._submit = submit
        self._idle = idle
        self._max_poll_rows = max_poll_rows
        self._stopped = threading.Event()

    @property
    def ended(self) -> bool:
        """True once every input ended and everything it gave was submitted."""
        return not self._active

    def step(self) -> bool:
        """One round over all inputs; True if any of them had something new."""
        fed = False
        for feed in list(self._active):
            if self._stopped.is_set():
                break
            splits = feed.input.poll(self._max_poll_rows)
            if splits:
                self._submit(feed.table, splits)
                fed = True
            if feed.input.ended:
                self._active.remove(feed)
        return fed

    def run(self) -> None:
        """Feed until every input ended or `stop` is called. Errors of an input end it and are raised."""
        while not self._stopped.is_set() and not self.ended:
            if not self.step() and not self.ended:
                self._idle()

    def stop(self) -> None:
        """Let `run` return after the poll it is in; safe to call from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Close every input."""
        for feed in self._feeds:
            feed.input.close()
