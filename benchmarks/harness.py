"""Runs systems one after another, each in a process of its own, on data made for the purpose."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.environments import ROOT, NotAvailableError, interpreter
from benchmarks.processes import MemoryMeter, end_session
from benchmarks.results import Memory, Result, Timings
from benchmarks.systems import SYSTEMS
from benchmarks.workload import Workload

PATIENCE = 1_800.0
"""Seconds until a system that says nothing is given up."""

Report = Callable[[dict[str, Any]], None]


def run_system(name: str, workload: Workload, report: Report) -> Result:
    """Measure one system; whatever happens to it becomes part of the result."""
    entry, shape = SYSTEMS[name], workload.shape

    def result(timings: Timings | None, memory: Memory, problem: str = "") -> Result:
        return Result(name, shape.orders, shape.bulk_changes, entry.durable, timings, memory, problem)

    report({"event": "phase", "name": "preparing"})
    try:
        python = interpreter(entry)
    except NotAvailableError as error:
        return result(None, Memory(), f"not available: {error}")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as state:
        log = Path(state) / "engine.log"
        with started(python, name, workload, Path(state), log) as (process, channel):
            meter = MemoryMeter(process.pid)
            meter.start()
            try:
                last = follow(channel, report)
            finally:
                memory = meter.stop()
        if last["event"] == "result":
            timings = Timings(**last["timings"])
            return result(timings, memory, "" if timings.correct else tail(log))
        return result(None, memory, f"failed: {last.get('problem') or tail(log)}")


@contextmanager
def started(
    python: Path, name: str, workload: Workload, state: Path, log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A worker and the channel it reports on; on the way out nothing it started is left."""
    reading, writing = os.pipe()
    command = [
        str(python),
        "-m",
        "benchmarks.worker",
        name,
        str(workload.directory),
        str(state),
        str(writing),
    ]
    with os.fdopen(reading, "rb") as channel, log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            yield process, channel
        except BaseException:
            end_session(process.pid)
            raise
        finally:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                pass
            end_session(process.pid)
            process.wait()


def follow(channel: IO[bytes], report: Report) -> dict[str, Any]:
    """Hand on each event until the worker's last one; silence and a sudden end are failures too."""
    pending = b""
    while True:
        ready, _, _ = select.select([channel], [], [], PATIENCE)
        if not ready:
            return {"event": "failed", "problem": f"no progress for {PATIENCE:.0f} s"}
        chunk = os.read(channel.fileno(), 65_536)
        if not chunk:
            return {"event": "failed", "problem": ""}
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["event"] in ("result", "failed"):
                return dict(event)
            report(event)


def tail(log: Path) -> str:
    """The last words of a worker."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it ended without a word"
