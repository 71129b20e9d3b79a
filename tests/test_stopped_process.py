"""A process that is stopped for long, as with a laptop or a virtual machine, goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TIMEOUT = 10
"""Seconds after which Spark would take an executor for dead; two minutes, if nobody says otherwise."""

STOPS = 4
"""What Spark does first after each of them, to look at the time or to give a sign of life, is open."""

PATIENCE = 180

PROGRAM = f"""
import time, penstock
spark = {{
    "spark.network.timeout": "{TIMEOUT}s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "9s",
    "spark.executor.heartbeat.maxFailures": "1",
}}
text = "CREATE TABLE t (id INT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c FROM t;"
with penstock.Pipeline("p", text, config={{"workers": 1, "spark": spark}}) as pipeline:
    while True:
        pipeline.insert("t", [{{"id": 1}}])
        pipeline.flush()
        print(pipeline.query("SELECT c FROM v").to_pylist()[0]["c"], flush=True)
        time.sleep(0.2)
"""


class Process:
    """Counts rows, and says so."""

    def __init__(self, directory: Path) -> None:
        self._out = directory / "out"
        with self._out.open("w") as out, (directory / "errors").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM], stdout=out, stderr=errors, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    @property
    def counted(self) -> int:
        return len(self._out.read_text().splitlines())

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.counted < count:
            assert self._process.poll() is None, "it ended"
            assert time.monotonic() < deadline, f"it does not get to {count}"
            time.sleep(0.1)

    def check(self) -> None:
        """Each row was counted once."""
        lines = self._out.read_text().splitlines()
        assert [int(line) for line in lines] == list(range(1, len(lines) + 1))

    def kill(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.wait(60)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    found = Process(tmp_path)
    yield found
    found.kill()


@pytest.mark.slow(minutes=1)
def test_it_goes_on(process: Process) -> None:
    """Spark alone would take its own executor for dead, and end."""
    process.wait_for(3)
    for _ in range(STOPS):
        process.signal(signal.SIGSTOP)
        time.sleep(1.3 * TIMEOUT)
        process.signal(signal.SIGCONT)
        process.wait_for(process.counted + 3)
    time.sleep(2 * TIMEOUT)  # so that signs of life are due again
    process.wait_for(process.counted + 3)
    process.check()
