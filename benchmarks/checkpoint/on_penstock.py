"""Penstock's part: `... on_penstock write|restore|time DATA STATE ROUNDS BLOCKS [lazy|eager]`.

`write` loads, takes a checkpoint, then takes one after each transaction, and waits to be killed. `restore`
(lazy or eager) starts from the last one and answers. `time` goes on with transactions, with checkpoints being
taken meanwhile and without.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import penstock
from benchmarks.checkpoint.orders import BLOCK, Parts
from benchmarks.events import say
from benchmarks.system import CORES, Run
from benchmarks.systems.on_penstock import Inserted
from benchmarks.workload import QUERY, Answer, Workload
from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.model import CATALOG, CATALOG_FILE, Manifest


class Kept(Inserted):
    """Goes on from what is there, and takes a checkpoint only when it is told to."""

    @property
    def storage(self) -> Path:
        return self.run.directory / "storage"

    def start(self, verify: str = "lazy") -> None:
        durability = {"checkpoint_interval_secs": None, "verify": verify}
        config = {"workers": CORES, "fault_tolerance": durability}
        self.pipeline = penstock.Pipeline("orders", self.program(), str(self.storage), config)
        self.pipeline.start()

    def checkpoint(self) -> Manifest:
        self.pipeline.checkpoint()
        entry = CATALOG.read(self.storage / CATALOG_FILE).line[-1]
        return read_manifest(self.storage, entry)

    def recomputed(self) -> Answer:
        """The view's answer, computed from the tables."""
        rows = self.pipeline.query(QUERY).to_pylist()
        return {(row["region"], row["status"]): (row["orders"], int(row["total"] * 100)) for row in rows}


class Checkpointing(threading.Thread):
    """Takes checkpoints one after another until it is told to stop."""

    def __init__(self, pipeline: penstock.Pipeline) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self._pipeline = pipeline
        self._enough = threading.Event()

    def run(self) -> None:
        while not self._enough.is_set():
            began = time.monotonic()
            self._pipeline.checkpoint()
            self.seconds.append(time.monotonic() - began)

    def stop(self) -> None:
        self._enough.set()
        self.join()


def write(kept: Kept, parts: Parts) -> None:
    kept.start()
    kept.load()
    before = kept.checkpoint()
    say("loaded")
    rounds = parts.in_rounds(kept.run.workload)
    for transaction in rounds:
        kept.prepare(transaction)
        kept.apply(transaction)
        after = kept.checkpoint()
        say("round", **written(kept.storage, before, after))
        before = after
    say("answer", correct=kept.answer() == rounds[-1].answer)
    time.sleep(3_600)


def written(storage: Path, before: Manifest, after: Manifest) -> dict[str, int]:
    """The bytes that one manifest has and the one before has not, and those of the state as it was."""
    sizes = {"transaction": 0, "merged": 0}
    for trace, name in after.batches - before.batches:
        # m...: merged in the background; ...-m: merged by the transaction's own tasks
        kind = "merged" if name.startswith("m") or name.endswith("-m") else "transaction"
        sizes[kind] += after.traces[trace][name].bytes
    own = sum(file.stat().st_size for file in (storage / "checkpoints" / after.checkpoint).iterdir())
    return {
        "state": before.bytes,
        **sizes,
        "own": own,
        "catalog": (storage / CATALOG_FILE).stat().st_size,
    }


def restore(kept: Kept, parts: Parts, verify: str) -> None:
    say("python")
    kept.start(verify)
    say("running", **kept.pipeline.stats()["recovery"])
    found = kept.answer()
    say("view")
    expected = parts.in_rounds(kept.run.workload)[-1].answer
    say("answer", correct=found == expected == kept.recomputed())


def timed(kept: Kept, parts: Parts) -> None:
    kept.start()
    for transaction in parts.to_warm_up(kept.run.workload):
        kept.apply(transaction)
        say("warm-up")
    transactions = parts.to_time(kept.run.workload)
    for number in range(0, len(transactions), BLOCK):
        checkpointing = Checkpointing(kept.pipeline) if number // BLOCK % 2 else None
        if checkpointing is not None:
            checkpointing.start()
        for transaction in transactions[number : number + BLOCK]:
            kept.prepare(transaction)
            began = time.monotonic()
            kept.apply(transaction)
            say("transaction", seconds=time.monotonic() - began, during=checkpointing is not None)
        if checkpointing is not None:
            checkpointing.stop()
            say("checkpoints", seconds=checkpointing.seconds)
    say("answer", correct=kept.answer() == transactions[-1].answer)


if __name__ == "__main__":
    _, what, data, state, rounds, blocks, *more = sys.argv
    kept, parts = Kept(Run(Workload(Path(data)), Path(state))), Parts(int(rounds), int(blocks))
    if what == "restore":
        restore(kept, parts, *more)
    else:
        {"write": write, "time": timed}[what](kept, parts)
