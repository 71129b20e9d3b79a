"""How long to wait before trying again."""

from __future__ import annotations

from collections.abc import Iterator

_FIRST = 0.1
_LONGEST = 30.0


def pauses() -> Iterator[float]:
    """Seconds, growing.

    >>> grown = pauses()
    >>> [next(grown) for _ in range(4)]
    [0.1, 0.2, 0.4, 0.8]
    """
    seconds = _FIRST
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST)
