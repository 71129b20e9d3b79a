"""The *orders* workload cut for checkpoints, and which part of the benchmark runs which transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.generate import generate
from benchmarks.workload import Shape, Transaction, Workload

CHANGES = 1_000
WARM_UP = 10
BLOCK = 10
"""Transactions without checkpoints and with them take turns, so many at a time."""


@dataclass(frozen=True)
class Parts:
    """Transactions: first one for each round, at whose end the process is killed, then those timed."""

    rounds: int
    blocks: int
    """Of either kind."""

    @property
    def timed(self) -> int:
        return 2 * self.blocks * BLOCK

    @property
    def transactions(self) -> int:
        return self.rounds + WARM_UP + self.timed

    def arguments(self) -> list[str]:
        return [str(number) for number in asdict(self).values()]

    def in_rounds(self, workload: Workload) -> list[Transaction]:
        return list(workload.transactions())[: self.rounds]

    def to_warm_up(self, workload: Workload) -> list[Transaction]:
        return list(workload.transactions())[self.rounds : self.rounds + WARM_UP]

    def to_time(self, workload: Workload) -> list[Transaction]:
        return list(workload.transactions())[self.rounds + WARM_UP :]


def make(directory: Path, orders: int, parts: Parts, progress: Callable[[], None]) -> Workload:
    """Write the data; the answer after each transaction lies beside it."""
    shape = Shape.of(orders, parts.transactions)
    shape = replace(shape, changes=min(CHANGES, orders // 10), bulk_transactions=0, warm_up=0)
    return generate(directory, shape, progress)
