"""What a view's readers get: its rows, then its changes transaction by transaction."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Change:
    """The rows of a view that one transaction inserted and deleted."""

    transaction: int
    data: pa.Table


def with_change_type(table: pa.Table) -> pa.Table:
    """Signed weights as `_change_type` and a positive `_weight`, deletions first."""
    weight = table.column("_weight").to_numpy()
    order = pa.array(np.argsort(weight > 0, kind="stable"))
    table = table.take(order)
    weight = table.column("_weight").to_numpy()
    kinds = pa.array(np.where(weight > 0, "insert", "delete"), pa.string())
    return (
        table.drop_columns(["_weight"])
        .append_column("_change_type", kinds)
        .append_column("_weight", pa.array(np.abs(weight), pa.int64()))
    )


class Changes(Iterator[Change]):
    """A reader of one view. Iterating yields what there is and ends when it has caught up; iterate
    again for more. With `follow` it waits for more instead, until the pipeline stops."""

    def __init__(self, view: str, *, follow: bool) -> None:
        self.view = view
        self._follow = follow
        self._waiting: deque[Change] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def deliver(self, change: Change) -> None:
        with self._changed:
            self._waiting.append(change)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        with self._changed:
            while self._follow and not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                raise StopIteration
            return self._waiting.popleft()
