"""Processes that are listened to, and killed: each in a session of its own, which is cleared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT
from benchmarks.events import CHANNEL
from benchmarks.harness import tail
from benchmarks.processes import end_session
from benchmarks.workload import Workload


class RunError(Exception):
    """A process ended before it said what was waited for; says its last words."""


@dataclass(frozen=True)
class Event:
    """What a process said, and how many seconds after its start."""

    after: float
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.content["event"])


def asked(
    module: str,
    what: str,
    workload: Workload,
    state: Path,
    *more: str,
    report: Callable[[Event], None] = lambda _: None,
) -> dict[str, Event]:
    """Start a process, and kill it when it has an answer; what it said last, by the name of the event."""
    found: dict[str, Event] = {}
    with events(module, what, workload, state, *more) as said:
        for event in said:
            found[event.name] = event
            report(event)
            if event.name == "answer":
                break
    return found


def events(
    module: str, what: str, workload: Workload, state: Path, *more: str
) -> AbstractContextManager[Iterator[Event]]:
    """What a new process that does something with a workload says."""
    return child(state, module, what, str(workload.directory), str(state), *more)


@contextmanager
def child(
    state: Path, module: str, *arguments: str, python: Path = Path(sys.executable)
) -> Iterator[Iterator[Event]]:
    """What a new process says, whose log is in `state`; it is killed (-9) at the end of the block."""
    reading, writing = os.pipe()
    log = state / "engine.log"
    with os.fdopen(reading) as channel, log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [str(python), "-m", module, *arguments],
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
            raise RunError(f"{module} {arguments[0]}: {tail(log)}")

        try:
            yield said()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            end_session(process.pid)
