"""What a view's readers get: its rows, then its changes transaction by transaction."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Change:
    """The rows of a view that one transaction inserted and deleted."""

    transaction: int
    data: pa.Table
    snapshot: bool = False
    """Whether it is the first: all rows as they are, and not what a transaction did."""


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


MAX_CHANGES = 1_000
MAX_BYTES = 64 << 20
"""A reader that has more than this to read does not keep up."""


class Slow(StrEnum):
    """What becomes of a reader that does not keep up."""

    KEPT = "kept"
    """Everything is kept for it, in memory."""
    AWAITED = "awaited"
    """The pipeline waits for it."""
    DROPPED = "dropped"
    """It gets nothing more."""


class Changes(Iterator[Change]):
    """A reader of one view. Iterating yields what there is and ends when it has caught up; iterate
    again for more. With `follow` it waits for more instead, until the pipeline stops."""

    def __init__(self, view: str, *, follow: bool, slow: Slow = Slow.KEPT) -> None:
        self.view = view
        self.dropped = False
        """Whether it did not keep up, and lacks changes."""
        self.passed = -1
        """Up to this transaction everything that changed was delivered."""
        self._follow = follow
        self._slow = slow
        self._waiting: deque[Change] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False

    def deliver(self, change: Change) -> None:
        with self._changed:
            if self._slow is Slow.DROPPED and self._is_full:
                self.dropped = self._closed = True
                self._waiting.clear()
            if not self._closed:
                self._waiting.append(change)
                self._bytes += change.data.nbytes
            self._changed.notify_all()

    def advance(self, transaction: int) -> None:
        """What this transaction changed, if anything, was delivered."""
        with self._changed:
            self.passed = transaction
            self._changed.notify_all()

    def wait_for_room(self, seconds: float) -> bool:
        """Wait while it does not keep up, if the pipeline is to wait for it, but not for longer; returns
        whether it does then."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._slow is not Slow.AWAITED or not self._is_full or self._closed, seconds
            )

    def unbind(self) -> None:
        """Wait for it no more: the pipeline stops, and what it has to read stays for it to read."""
        with self._changed:
            self._slow = Slow.KEPT
            self._changed.notify_all()

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= MAX_CHANGES or self._bytes >= MAX_BYTES

    def _pop(self) -> Change:
        change = self._waiting.popleft()
        self._bytes -= change.data.nbytes
        self._changed.notify_all()
        return change

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        with self._changed:
            return self._closed and not self._waiting

    def take(self, timeout: float, after: int) -> Change | int | None:
        """The next change; or, if all were taken, the last transaction that passed if it is later than
        `after`; None if there is neither within so many seconds."""
        with self._changed:
            if not self._waiting and not self._closed and self.passed <= after:
                self._changed.wait(timeout)
            if self._waiting:
                return self._pop()
            return self.passed if self.passed > after else None

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        with self._changed:
            while self._follow and not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting:
                raise StopIteration
            return self._pop()
