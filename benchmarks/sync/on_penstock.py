"""Penstock's part: `... on_penstock DATA STATE ROUNDS SYNC`.

Loads, takes a checkpoint and pushes it, and does so again after each transaction.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import penstock
from benchmarks.checkpoint.on_penstock import Kept
from benchmarks.checkpoint.orders import Parts
from benchmarks.events import say
from benchmarks.system import CORES, Run
from benchmarks.workload import Workload


class Pushed(Kept):
    """Its checkpoints are pushed when it is told to."""

    def __init__(self, run: Run, sync: dict[str, Any]) -> None:
        super().__init__(run)
        self._sync = sync

    def start(self, verify: str = "lazy") -> None:
        config = {
            "workers": CORES,
            "fault_tolerance": {"checkpoint_interval_secs": None, "verify": verify},
            "storage": {"backend": {"config": {"sync": self._sync}}},
        }
        self.pipeline = penstock.Pipeline("orders", self.program(), str(self.storage), config)
        self.pipeline.start()

    def push(self) -> dict[str, float]:
        """Take a checkpoint and push it."""
        state = self.checkpoint().bytes
        before = self.pipeline.stats()["sync"]["bytes"]
        began = time.monotonic()
        self.pipeline.sync_checkpoint()
        seconds = time.monotonic() - began
        return {"state": state, "bytes": self.pipeline.stats()["sync"]["bytes"] - before, "seconds": seconds}


def write(kept: Pushed, parts: Parts) -> None:
    kept.start()
    kept.load()
    say("loaded", **kept.push())
    rounds = parts.in_rounds(kept.run.workload)
    for transaction in rounds:
        kept.prepare(transaction)
        kept.apply(transaction)
        say("round", **kept.push())
    say("answer", correct=kept.answer() == rounds[-1].answer)
    time.sleep(3_600)


if __name__ == "__main__":
    _, _, data, state, rounds, sync = sys.argv
    write(Pushed(Run(Workload(Path(data)), Path(state)), json.loads(sync)), Parts(int(rounds), 0))
