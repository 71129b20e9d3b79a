"""Writes, kills, starts again and measures; each process in a session of its own, which is cleared."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT
from benchmarks.harness import tail
from benchmarks.processes import end_session
from benchmarks.recovery import on_penstock, on_streaming
from benchmarks.recovery.events import CHANNEL
from benchmarks.workload import Workload

Report = Callable[[int], None]
"""Called with the number of transactions written."""


class RunError(Exception):
    """A process ended before it said what was waited for; says its last words."""


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


@dataclass(frozen=True)
class Event:
    """What a process said, and how many seconds after its start."""

    after: float
    content: dict[str, Any]


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
    found = restarted(on_penstock.__name__, workload, state)
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
    found = restarted(on_streaming.__name__, workload, state)
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
            if event.content["event"] == "written":
                return
            report(event.content["number"] + 1)


def restarted(module: str, workload: Workload, state: Path) -> dict[str, Event]:
    """Start it again; everything it said, by the name of the event."""
    found: dict[str, Event] = {}
    with events(module, "restart", workload, state) as said:
        for event in said:
            found[event.content["event"]] = event
            if "answer" in found:
                break
    return found


@contextmanager
def events(module: str, what: str, workload: Workload, state: Path) -> Iterator[Iterator[Event]]:
    """What a new process says; it is killed (-9) at the end of the block."""
    reading, writing = os.pipe()
    log = state / "engine.log"
    with os.fdopen(reading) as channel, log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", module, what, str(workload.directory), str(state)],
            cwd=ROOT,
            env={**os.environ, CHANNEL: str(writing)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)

        def said() -> Iterator[Event]:
            for line in channel:
                yield Event(time.monotonic() - began, json.loads(line))
            raise RunError(f"{module} {what}: {tail(log)}")

        try:
            yield said()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            end_session(process.pid)
