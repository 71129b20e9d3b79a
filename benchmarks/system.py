"""What a system must do to take part. The worker calls these methods in this order and holds the clock."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.workload import Answer, Transaction, Workload

CORES = os.cpu_count() or 1
"""What every system may use: all of them get the same."""


@dataclass(frozen=True)
class Run:
    """What a system is given: the data, and a directory of its own for state."""

    workload: Workload
    directory: Path
    figures: dict[str, float] = field(default_factory=dict)
    """Measurements that only this system has, by name."""

    def place(self, name: str) -> Path:
        """A new directory for state of the system."""
        path = self.directory / name
        path.mkdir(parents=True)
        return path


class System(Protocol):
    """One way to keep the view's answer up to date."""

    def __init__(self, run: Run) -> None: ...

    def start(self) -> None:
        """Everything before the first load: processes, sessions, warm-up; reported but not compared."""

    def load(self) -> None:
        """Take in all customers and orders; return when the answer is there."""

    def prepare(self, transaction: Transaction) -> None:
        """Bring the changes into the form in which they would arrive; not timed."""

    def apply(self, transaction: Transaction) -> None:
        """Take in one transaction; return when the answer is up to date."""

    def answer(self) -> Answer:
        """The answer now."""

    def stop(self) -> None:
        """End everything that was started; also called after a failure."""
