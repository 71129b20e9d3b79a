"""Writes, kills, starts again and measures; every measurement in a process of its own."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoint import on_penstock, on_streaming
from benchmarks.checkpoint.cold import drop_from_memory
from benchmarks.checkpoint.orders import Parts
from benchmarks.children import Event, RunError, asked
from benchmarks.workload import Workload

Report = Callable[[], None]
"""Called at each step."""


@dataclass(frozen=True)
class Written:
    """What one transaction and the checkpoint after it wrote, in bytes."""

    state: int
    """All that the checkpoint before consists of."""
    transaction: int
    """Batches that the transaction wrote when it ran."""
    merged: int
    """Batches that were made of older ones, in the background or by the transaction's own tasks."""
    own: int
    """The files in the directory of the checkpoint."""
    catalog: int

    @property
    def commit(self) -> int:
        """What taking the checkpoint writes; the rest it only syncs. The catalog is written twice: with the
        new checkpoint, and without the one that is let go of."""
        return self.own + 2 * self.catalog

    @property
    def all(self) -> int:
        return self.transaction + self.merged + self.commit


@dataclass(frozen=True)
class Rounds:
    """What was written in each round."""

    written: list[Written]
    correct: bool


@dataclass(frozen=True)
class Speed:
    """Seconds of each transaction, and of each checkpoint that was taken meanwhile."""

    usual: list[float]
    during: list[float]
    checkpoints: list[float]
    correct: bool

    @property
    def ratio(self) -> float:
        return statistics.median(self.during) / statistics.median(self.usual)


@dataclass(frozen=True)
class Restore:
    """One cold start, in seconds."""

    system: str
    answered: float
    """From the start of the process to the answer."""
    python: float
    """Of it, the interpreter and its imports."""
    spark: float
    check: float | None
    """Of it, finding and checking the checkpoint; None: not told apart from the rest."""
    load: float | None
    """Of it, the state and the circuit."""
    query: float
    """Of it, from then on."""
    recomputed: float | None
    """After it, the view's query over the tables, which reads all of the state."""
    correct: bool


def penstock_rounds(workload: Workload, state: Path, parts: Parts, report: Report) -> Rounds:
    """Load, and take a checkpoint after each transaction; then kill it."""
    written: list[Written] = []

    def hear(event: Event) -> None:
        report()
        if event.name == "round":
            sizes = {name: size for name, size in event.content.items() if name != "event"}
            written.append(Written(**sizes))

    state.mkdir()
    found = asked(on_penstock.__name__, "write", workload, state, *parts.arguments(), report=hear)
    return Rounds(written, found["answer"].content["correct"])


def penstock_restore(workload: Workload, state: Path, parts: Parts, verify: str) -> Restore:
    drop_from_memory(state)
    found = asked(on_penstock.__name__, "restore", workload, state, *parts.arguments(), verify)
    python, running, view = found["python"].after, found["running"], found["view"].after
    spark, load = running.content["spark_s"], running.content["load_s"] + running.content["replay_s"]
    return Restore(
        f"Penstock, verify: {verify}",
        answered=view,
        python=python,
        spark=spark,
        check=running.after - python - spark - load,
        load=load,
        query=view - running.after,
        recomputed=found["answer"].after - view,
        correct=found["answer"].content["correct"],
    )


def penstock_speed(workload: Workload, state: Path, parts: Parts, report: Report) -> Speed:
    """Go on from the last checkpoint, with others being taken meanwhile and without."""
    times: dict[bool, list[float]] = {False: [], True: []}
    checkpoints: list[float] = []

    def hear(event: Event) -> None:
        if event.name == "checkpoints":
            checkpoints.extend(event.content["seconds"])
            return
        report()
        if event.name == "transaction":
            times[event.content["during"]].append(event.content["seconds"])

    found = asked(on_penstock.__name__, "time", workload, state, *parts.arguments(), report=hear)
    return Speed(times[False], times[True], checkpoints, found["answer"].content["correct"])


def streaming_written(workload: Workload, state: Path, parts: Parts, kept: str) -> None:
    """The state as Structured Streaming keeps it, with one transaction waiting."""
    state.mkdir()
    found = asked(on_streaming.__name__, "write", workload, state, *parts.arguments(), kept)
    shutil.rmtree(state / "spark-local", ignore_errors=True)
    (state / on_streaming.LAST).rename(state / on_streaming.SOURCE / on_streaming.LAST)
    if not found["answer"].content["correct"]:
        raise RunError(f"Structured Streaming, {kept}: the answer is wrong before the restart")


def streaming_restore(workload: Workload, state: Path, parts: Parts, kept: str) -> Restore:
    """Start it again, and put its files back: the batch that it answers with changes its state."""
    kept_files = state.with_name(f"{state.name}-kept")
    shutil.copytree(state, kept_files)
    drop_from_memory(state, workload.customers)
    found = asked(on_streaming.__name__, "restore", workload, state, *parts.arguments(), kept)
    shutil.rmtree(state)
    kept_files.rename(
        state
    )  # its log has the paths of the files that it has read, so they stay where they are
    python, running, view = found["python"].after, found["running"].after, found["view"].after
    return Restore(
        f"Structured Streaming, state: {kept}",
        answered=view,
        python=python,
        spark=running - python,
        check=None,
        load=None,
        query=view - running,
        recomputed=None,
        correct=found["answer"].content["correct"],
    )
