"""Processes that write the shard of most tests, until it has all times."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from typing import ClassVar

from penstock.shard.stores.place import PlaceConfig
from tests.shard.rows import opened


class Process:
    """One writer: a module below `tests.crash`."""

    started: ClassVar[list[Process]] = []

    def __init__(self, module: str, config: PlaceConfig, until: int, failpoint: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.crash.{module}", json.dumps(config.plain), str(until)],
            env={**os.environ, "PENSTOCK_FAILPOINT": failpoint},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(self)

    def wait_until_ready(self) -> None:
        """For one that says so, and that waits for `go`."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> list[str]:
        """What it said until it ended; there is nothing more on its standard input."""
        out, _ = self._process.communicate(timeout=120)
        return out.split("\n")

    @property
    def code(self) -> int:
        return self._process.wait(timeout=120)

    def end(self) -> None:
        """Nothing of it is left, whatever became of the test."""
        self._process.kill()
        self._process.communicate()


def end_all() -> None:
    while Process.started:
        Process.started.pop().end()


def upper(config: PlaceConfig) -> int:
    place = config.opened()
    try:
        return opened(place).upper
    finally:
        place.close()


def wait_for(config: PlaceConfig, time_: int) -> None:
    deadline = time.monotonic() + 240
    while upper(config) < time_:
        assert time.monotonic() < deadline, "nobody writes"
        time.sleep(0.05)


def stop_without_lock(process: Process, config: PlaceConfig) -> None:
    """Stop a process, but not while it holds the lock of an SQLite file: then nobody else gets on, either,
    until it does; all that a shard can do about that is to say so."""
    while True:
        process.signal(signal.SIGSTOP)
        if not (config.log_uri or "").startswith("sqlite:///"):
            return
        connection = sqlite3.connect(config.log_uri.removeprefix("sqlite:///"), timeout=1)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            process.signal(signal.SIGCONT)
            time.sleep(0.05)
        finally:
            connection.close()
