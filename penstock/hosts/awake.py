"""A clock that stands still while this process is stopped.

A process that was stopped, or whose machine slept, has heard of nobody for that time, and nobody is lost
thereby. So a thread looks at the clock every second: nothing else in the process is sure to be that punctual.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LOOK_SECONDS = 1.0

_STOPPED_SECONDS = 3.0
"""Nobody looked at the clock for longer than this: the process was stopped."""


class AwakeClock:
    """Seconds that this process was awake."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock()
        self._slept = 0.0

    def now(self) -> float:
        with self._lock:
            now = self._clock()
            if now - self._last > _STOPPED_SECONDS:
                self._slept += now - self._last
            self._last = now
            return now - self._slept

    def look(self, ended: threading.Event) -> None:
        """Begin to look at it, until this is set."""

        def look() -> None:
            while not ended.wait(_LOOK_SECONDS):
                self.now()

        threading.Thread(target=look, name="penstock clock", daemon=True).start()
