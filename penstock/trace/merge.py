"""When to merge batches, and how.

Sizes grow geometrically: as soon as `FAN_IN` batches of about the same size have gathered, they
become one of the next size. A trace of n rows therefore has at most (FAN_IN - 1) batches per
power of FAN_IN, and each row is rewritten at most log(n) times. Weights commute, so any batches
may be merged in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.trace.batch import Batch, scan, write_batch
from penstock.trace.rows import Layout

FAN_IN = 4
_SMALLEST = 256


def level(rows: int) -> int:
    """The size class of a batch."""
    power = 0
    size = _SMALLEST
    while rows > size:
        size *= FAN_IN
        power += 1
    return power


def choose(sizes: Mapping[str, int]) -> list[str]:
    """The batches to merge next, smallest class first; none if all is well.

    >>> choose({"a": 10, "b": 20, "c": 5000, "d": 30, "e": 200})
    ['a', 'b', 'd', 'e']
    >>> choose({"a": 10, "b": 20, "c": 5000})
    []
    """
    classes: dict[int, list[str]] = {}
    for name, rows in sizes.items():
        classes.setdefault(level(rows), []).append(name)
    for power in sorted(classes):
        if len(classes[power]) >= FAN_IN:
            chosen = classes[power]
            # What the merge will produce may complete the next class: take that along, once.
            grown = level(sum(sizes[name] for name in chosen))
            for above in range(power + 1, grown + 1):
                if len(classes.get(above, [])) >= FAN_IN - 1:
                    chosen = chosen + classes[above]
                    grown = max(grown, level(sum(sizes[name] for name in chosen)))
            return chosen
    return []


def merge(layout: Layout, paths: list[str], target: Path) -> tuple[int, int]:
    """Write one batch with the contents of several; returns its rows and bytes."""
    batches = [Batch(path, layout) for path in paths]
    return write_batch(target, layout, scan(layout, batches))
