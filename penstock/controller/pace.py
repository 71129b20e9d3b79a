"""Whether transactions get on while there is something for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from penstock.controller.outputs import is_long


class Pace:
    """Looks from time to time where they stand."""

    def __init__(self, where: Callable[[], Hashable | None]) -> None:
        """`where` they stand; None if there is nothing to do."""
        self._where = where
        self._seen: Hashable | None = None
        self._since = time.monotonic()

    def look(self) -> None:
        """See whether they have moved."""
        found = self._where()
        if found is None or found != self._seen:
            self._seen, self._since = found, time.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Whether they have not moved for long, though there is something to do."""
        return self._seen is not None and is_long(self._since)
