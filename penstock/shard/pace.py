"""How long to wait before looking again whether there is something new."""

from __future__ import annotations

import time

_SHARE = 20


class Pace:
    """The longer nothing came, the longer; but never more than a twentieth of that, so what comes in a stream
    is found as soon as ever."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, max(shortest, longest)
        self._found: object = None
        self._since = time.monotonic()

    def after(self, found: object) -> float:
        """How long to wait after a look that found this."""
        now = time.monotonic()
        if found != self._found:
            self._found, self._since = found, now
        return min(max(self._shortest, (now - self._since) / _SHARE), self._longest)
