"""The processes of one system, as Linux shows them: found by session, measured, and ended one by one.

A worker leads a session of its own, and what it starts (a JVM, Python workers) stays in it even where it
leaves the process group or outlives its parent. All is read from /proc: only there is it told how much of the
shared memory is anonymous.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Memory

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Process:
    """One process that was there a moment ago: every read may find it gone."""

    pid: int
    command: str

    @property
    def python(self) -> bool:
        return self.command.startswith("python")

    def resident(self) -> int:
        return int((PROC / str(self.pid) / "statm").read_text().split()[1]) * PAGE

    def shares(self) -> dict[str, int]:
        """Its share of the pages it has mapped, in bytes: `Pss`, of which `Pss_File` belongs to files."""
        lines = (PROC / str(self.pid) / "smaps_rollup").read_text().splitlines()[1:]
        return {name.rstrip(":"): int(size) * 1024 for name, size, *_ in map(str.split, lines)}


def in_session(leader: int) -> Iterator[Process]:
    """All processes whose session is led by `leader`."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # ended in between
            continue
        command, _, rest = stat.partition("(")[2].rpartition(")")
        state, _parent, _group, session, *_ = rest.split()
        if int(session) == leader and state != "Z":
            yield Process(int(entry.name), command)


def end_session(leader: int, patience: float = 10.0) -> None:
    """End what is left of a session: asked first, then forced."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in in_session(leader):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not any(in_session(leader)):
                return
            time.sleep(0.05)


class MemoryMeter(threading.Thread):
    """Samples a session until stopped, and keeps the peaks.

    The JVM is counted as resident memory, which is cheap to read: walking all its pages would slow down what
    is being timed. The Python processes are few and small, and share pages, so their shares are added up.
    """

    def __init__(self, leader: int) -> None:
        super().__init__(daemon=True)
        self.leader = leader
        self.resident = 0
        self.python = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self._sample()

    def stop(self) -> Memory:
        self._stopped.set()
        self.join()
        return Memory(self.resident, self.python)

    def _sample(self) -> None:
        resident = python = 0
        for process in in_session(self.leader):
            try:
                if process.python:
                    shares = process.shares()
                    resident += shares["Pss"]
                    python += shares["Pss"] - shares["Pss_File"]
                else:
                    resident += process.resident()
            except (OSError, KeyError):  # ended in between: nothing, or nothing mapped any more
                continue
        self.resident = max(self.resident, resident)
        self.python = max(self.python, python)
