"""Runs one system in a process of its own: `python -m benchmarks.worker SYSTEM DATA STATE CHANNEL`.

Runs in the environment of the system, so it needs only the standard library, pyarrow and the system itself.
Events go as lines of JSON to the file descriptor CHANNEL: standard output belongs to the engines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.results import Timings
from benchmarks.system import Run, System
from benchmarks.systems import SYSTEMS
from benchmarks.workload import Answer, Workload


class Channel:
    """The way back to the harness."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(
            descriptor, False
        )  # or an engine that outlives the worker would keep the harness waiting
        self._file = os.fdopen(descriptor, "w", buffering=1)

    def send(self, event: str, **content: Any) -> None:
        self._file.write(json.dumps({"event": event, **content}) + "\n")


def main(name: str, data: str, state: str, descriptor: str) -> None:
    channel = Channel(int(descriptor))
    signal.signal(signal.SIGTERM, _terminate)
    run = Run(Workload(Path(data)), Path(state))
    system = SYSTEMS[name].load()(run)
    try:
        timings = measure(system, run, channel)
        channel.send("result", timings=asdict(timings))
    except Exception as error:
        channel.send("failed", problem=f"{type(error).__name__}: {error}")
        raise
    finally:
        system.stop()


def measure(system: System, run: Run, channel: Channel) -> Timings:
    channel.send("phase", name="starting")
    start = timed(system.start)
    channel.send("phase", name="first load")
    load = timed(system.load)
    correct = check(system.answer(), run.workload.loaded_answer, "the first load")
    small: list[float] = []
    bulk: list[float] = []
    for transaction in run.workload.transactions():
        system.prepare(transaction)
        started = time.perf_counter()
        system.apply(transaction)
        seconds = time.perf_counter() - started
        if transaction.measured:
            (bulk if transaction.bulk else small).append(seconds)
        channel.send("transaction", number=transaction.number, seconds=seconds)
    correct &= check(system.answer(), run.workload.final_answer, "the last transaction")
    return Timings(start, load, small, bulk, correct, run.figures)


def check(found: Answer, expected: Answer, when: str) -> bool:
    """Say on standard error how an answer is wrong; the harness only shows that it is."""
    wrong = [group for group in expected.keys() | found.keys() if expected.get(group) != found.get(group)]
    for group in sorted(wrong)[:5]:
        print(f"after {when}: {group} is {found.get(group)}, not {expected.get(group)}", file=sys.stderr)
    return not wrong


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _terminate(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    main(*sys.argv[1:])
