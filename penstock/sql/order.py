"""The order of views: each after those that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush


class CyclicError(Exception):
    """Views read each other in a circle; `cycle` starts and ends with the same view."""

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(" -> ".join(cycle))
        self.cycle = tuple(cycle)


def dependency_order(reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Names, each after those that it reads, otherwise in the order of the mapping.

    >>> dependency_order({"top": ["mid"], "mid": ["base"], "base": [], "other": []})
    ['base', 'mid', 'top', 'other']
    >>> dependency_order({"a": ["b"], "b": ["a"]})
    Traceback (most recent call last):
    penstock.sql.order.CyclicError: a -> b -> a
    """
    sorter = TopologicalSorter(reads)
    position = {name: index for index, name in enumerate(reads)}
    try:
        sorter.prepare()
    except CycleError as cause:
        raise CyclicError(_from_first(cause.args[1], position)) from None
    names = list(reads)
    ready = [position[name] for name in sorter.get_ready()]
    heapify(ready)
    ordered: list[str] = []
    while ready:
        name = names[heappop(ready)]
        ordered.append(name)
        sorter.done(name)
        for follower in sorter.get_ready():
            heappush(ready, position[follower])
    return ordered


def _from_first(cycle: Sequence[str], position: Mapping[str, int]) -> list[str]:
    """Reverse graphlib's cycle, in which each name is read by the next, and start at the first declared."""
    names = list(reversed(cycle))[:-1]
    start = min(range(len(names)), key=lambda index: position[names[index]])
    return [*names[start:], *names[:start], names[start]]
