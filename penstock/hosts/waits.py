"""For which hosts threads of the coordinator wait, why, and since when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Waits:
    """Threads may share it; each has one wait at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[int, tuple[float, str]] = {}

    def note(self, why: object) -> None:
        """This thread waits, still or from now on."""
        with self._lock:
            since, _ = self._found.get(threading.get_ident(), (self._clock(), ""))
            self._found[threading.get_ident()] = since, str(why)

    def over(self) -> None:
        """This thread does not wait any more."""
        with self._lock:
            self._found.pop(threading.get_ident(), None)

    @property
    def seconds(self) -> float:
        """How long the one has waited that has waited longest; 0 if none does."""
        with self._lock:
            return self._clock() - min((since for since, _ in self._found.values()), default=self._clock())

    def __str__(self) -> str:
        """Why, and how long; empty if none waits."""
        with self._lock:
            now, longest = self._clock(), dict[str, float]()
            for since, why in self._found.values():
                longest[why] = max(now - since, longest.get(why, 0.0))
        return "; ".join(f"waiting for {seconds:.0f} s: {why}" for why, seconds in longest.items())
