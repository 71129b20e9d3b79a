"""When to merge batches, and how.

Sizes grow geometrically: as soon as `FAN_IN` batches of about the same size have gathered, they
become one of the next size. A trace of n rows therefore has at most (FAN_IN - 1) batches per
power of FAN_IN, and each row is rewritten at most log(n) times. Weights commute, so any batches
may be merged in any order.

The smallest batches are merged by the task that adds one more of them, which costs it a few
milliseconds now and then; larger ones in the background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.trace.batch import Batch, scan, write_batch
from penstock.trace.rows import Layout

FAN_IN = 8
_SMALLEST = 4096


def level(rows: int) -> int:
    """The size class of a batch.

    >>> [level(rows) for rows in (1, 4096, 4097, 100_000)]
    [0, 0, 1, 2]
    """
    power = 0
    size = _SMALLEST
    while rows > size:
        size *= FAN_IN
        power += 1
    return power


def choose_smallest(sizes: Mapping[str, int]) -> list[str]:
    """The batches of the smallest class, if enough have gathered."""
    smallest = [name for name, rows in sizes.items() if level(rows) == 0]
    return smallest[: 2 * FAN_IN] if len(smallest) >= FAN_IN else []


def choose(sizes: Mapping[str, int]) -> list[str]:
    """The batches to merge in the background, smallest class first; none if all is well.

    >>> choose({name: 10_000 for name in "abcdefgh"} | {"x": 10, "y": 900_000})
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
    >>> choose({"a": 10_000, "b": 20_000, "c": 5_000})
    []
    """
    classes: dict[int, list[str]] = {}
    for name, rows in sizes.items():
        classes.setdefault(level(rows), []).append(name)
    for power in sorted(classes):
        # The smallest class is left to the tasks unless they do not get to it.
        enough = 3 * FAN_IN if power == 0 else FAN_IN
        if len(classes[power]) >= enough:
            return classes[power]
    return []


def merge(layout: Layout, batches: Sequence[Batch], target: Path) -> tuple[int, int, str]:
    """Write one batch with the contents of several; returns its rows, bytes and checksum."""
    return write_batch(target, layout, scan(layout, batches))
