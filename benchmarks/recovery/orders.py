"""The *orders* workload cut for recovery: a small first load, and many small transactions after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.generate import generate
from benchmarks.workload import Shape, Workload

CHANGES = 100


def make(directory: Path, orders: int, transactions: int, progress: Callable[[], None]) -> Workload:
    """Write the data; the answer after each transaction lies beside it."""
    shape = replace(
        Shape.of(orders, transactions), changes=min(CHANGES, orders // 10), bulk_transactions=0, warm_up=0
    )
    return generate(directory, shape, progress)
