"""A pipeline on hosts that are real processes, each with an address of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.hosts.worker import end_processes_of
from tests.hosts.drive import History

SEED = 7
PATIENCE = 300.0


class Site:
    """A coordinator's storage and its hosts. `config`: of the pipeline, but for their number; `first`: the
    last number of the first host's address."""

    def __init__(
        self, root: Path, hosts: int = 2, config: Mapping[str, Any] | None = None, first: int = 2
    ) -> None:
        self.root = root
        self._first = first
        self.storage = root / "shop"
        self._config = dict(config or {})
        self.hosts: list[subprocess.Popen[bytes]] = []
        self._drivers: list[subprocess.Popen[str]] = []
        self.begin(hosts)

    def begin(self, hosts: int) -> None:
        """Start so many hosts."""
        assert not self.hosts, "the others have ended"
        self.hosts = [self.host(index) for index in range(hosts)]

    def host(self, index: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock.cli", "host", "--index", str(index)]
        command += ["--coordinator", str(self.storage), "--storage", str(self.disk(index))]
        command += ["--address", f"127.0.0.{index + self._first}"]
        with (self.root / f"host {index}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def disk(self, index: int) -> Path:
        return self.root / f"host {index}"

    def drive(
        self,
        until: int,
        push: Sequence[int] = (),
        *,
        standby: bool = False,
        wait: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Begin to run transactions up to this one; `push` after some, and `wait` at the end to be killed."""
        hosts = {"hosts": len(self.hosts)} if self.hosts else {}
        options = {
            "storage": str(self.storage),
            "seed": SEED,
            "until": until,
            "config": {**self._config, **hosts},
            "push": list(push),
            "standby": standby,
            "wait": wait,
        }
        with (self.root / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.hosts.drive", json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        self._drivers.append(driver)
        return driver

    def replace(self, index: int) -> None:
        """Kill a host, and start one with a new disk."""
        self.hosts[index].kill()
        self.hosts[index].wait()
        self.lose(self.disk(index))
        self.hosts[index] = self.host(index)

    def end(self) -> None:
        """Kill all at once."""
        for process in [*self._drivers, *self.hosts]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.hosts = []

    def lose(self, *directories: Path) -> None:
        for directory in directories or list(self.root.iterdir()):
            if directory.is_dir():
                end_processes_of(directory)  # what a killed host leaves ends by itself, a little later
                shutil.rmtree(directory)

    def kill_host(self, index: int) -> None:
        """With SIGKILL, and start it again."""
        self.hosts[index].kill()
        self.hosts[index].wait()
        self.hosts[index] = self.host(index)

    def close(self) -> None:
        self.end()
        for driver in self._drivers:
            for pipe in (driver.stdin, driver.stdout):
                assert pipe is not None
                pipe.close()


def told(driver: subprocess.Popen[str], key: str) -> Any:
    """What the next line says that has this key."""
    assert driver.stdout is not None
    deadline = time.monotonic() + PATIENCE
    for line in driver.stdout:
        assert time.monotonic() < deadline
        if line.startswith("{") and key in (found := json.loads(line)):
            return found[key]
    raise AssertionError(f"the pipeline ended with code {driver.wait()} before it said {key}")


def expected(transactions: int) -> dict[str, list[list[Any]]]:
    history = History(SEED)
    for _ in range(transactions):
        history.step()
    return history.expected()
