"""What one run of one system gave, and how it travels from the worker to the harness."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True)
class Timings:
    """What the worker measured, in seconds."""

    start: float
    load: float
    transactions: list[float]
    bulk: list[float]
    correct: bool
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.transactions)

    @property
    def p95(self) -> float:
        if len(self.transactions) < 2:
            return self.transactions[0]
        return statistics.quantiles(self.transactions, n=20, method="inclusive")[-1]


@dataclass(frozen=True)
class Memory:
    """Peaks over the run, in bytes, of all processes of a system together."""

    resident: int = 0
    """Resident memory; pages that Python processes share count once."""
    python: int = 0
    """Anonymous memory of the Python processes: no JVM, and no mapped files, which Linux may drop."""


@dataclass(frozen=True)
class Result:
    """One line of the table; without timings, `problem` says why."""

    system: str
    orders: int
    bulk_changes: int
    durable: bool
    timings: Timings | None
    memory: Memory
    problem: str = ""

    @property
    def failed(self) -> bool:
        """A wrong answer or a crash; a peer that cannot be installed here is no failure."""
        if self.timings is None:
            return not self.problem.startswith("not available")
        return not self.timings.correct

    @property
    def bulk_rate(self) -> float:
        """Changes per second with large transactions."""
        assert self.timings is not None
        return self.bulk_changes * len(self.timings.bulk) / sum(self.timings.bulk)
