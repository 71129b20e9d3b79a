"""A sample a second of the figures that a chart shows, for the last minutes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

SAMPLES = 180

_log = logging.getLogger("penstock")


@dataclass(frozen=True)
class Sample:
    """`SampleStatistics` of the reference: time, records processed, memory and storage in bytes."""

    t: str
    r: int
    m: int
    s: int


class History:
    """Taken by a thread of its own until the pipeline ends."""

    def __init__(self, measure: Callable[[], tuple[int, int, int] | None]) -> None:
        self._measure = measure
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._lock = threading.Lock()

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(1):
            try:
                found = self._measure()
            except Exception:
                _log.exception("figures could not be taken")
                continue
            if found is not None:
                with self._lock:
                    self._samples.append(Sample(datetime.now(UTC).isoformat(), *found))

    def samples(self) -> list[Sample]:
        with self._lock:
            return list(self._samples)
