"""Writes, kills, starts again and measures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import asked, events
from benchmarks.recovery import on_penstock, on_streaming
from benchmarks.workload import Workload

Report = Callable[[int], None]
"""Called with the number of transactions written."""


@dataclass(frozen=True)
class Restart:
    """One way back, in seconds from the start of the process."""

    title: str
    running: float
    start: float
    """Python and Spark."""
    load: float | None
    """The state and the circuit; None: not told apart from the replay."""
    replay: float
    transactions: int
    correct: bool

    @property
    def each(self) -> float:
        """Seconds of replay per transaction."""
        return self.replay / max(self.transactions, 1)


def penstock(workload: Workload, state: Path, report: Report) -> Iterator[Restart]:
    """Both ways over the same journal: for an output that has everything, and for one that lacks it."""
    written(on_penstock.__name__, workload, state, report)
    kept = state.with_name("kept")
    shutil.copytree(state, kept)
    yield penstock_restart("Penstock, transactions together", workload, state)
    shutil.rmtree(state)
    kept.rename(state)
    for name in (on_penstock.OUTPUT, on_penstock.MARK):
        (state / on_penstock.BEFORE / name).replace(state / name)
    yield penstock_restart("Penstock, one by one for an output", workload, state)


def penstock_restart(title: str, workload: Workload, state: Path) -> Restart:
    found = asked(on_penstock.__name__, "restart", workload, state)
    running = found["running"]
    load, replay = running.content["load_s"], running.content["replay_s"]
    return Restart(
        title,
        running.after,
        running.after - load - replay,
        load,
        replay,
        running.content["transactions"],
        found["answer"].content["correct"],
    )


def streaming(workload: Workload, state: Path, report: Report) -> Restart:
    written(on_streaming.__name__, workload, state, report)
    (state / on_streaming.LAST).rename(state / "source" / on_streaming.LAST)
    found = asked(on_streaming.__name__, "restart", workload, state)
    running, start = found["running"], found["spark"].after
    return Restart(
        "Spark Structured Streaming, one batch repeated, one new",
        running.after,
        start,
        None,
        running.after - start,
        running.content["transactions"],
        found["answer"].content["correct"],
    )


def written(module: str, workload: Workload, state: Path, report: Report) -> None:
    """Run a writer, and kill it when everything is written."""
    state.mkdir()
    with events(module, "write", workload, state) as said:
        for event in said:
            if event.name == "written":
                return
            report(event.content["number"] + 1)
