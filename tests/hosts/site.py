"""A pipeline on real hosts or on one machine, which is driven from outside."""

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
from typing import Any, Self

from penstock.hosts.worker import end_processes_of
from tests.hosts.processes import Hosts, addresses_of, end
from tests.hosts.shop import History, changes_of, write_source, written

PATIENCE = 300.0


class Site:
    """A pipeline's storage, its sinks, and its hosts, if it has any. `connected`: it has inputs and outputs;
    `within` and `more`: see `Hosts`."""

    def __init__(
        self,
        root: Path,
        addresses: Sequence[str],
        config: Mapping[str, Any] | None = None,
        *,
        seed: int = 7,
        connected: bool = True,
        within: Mapping[int, Sequence[str]] | None = None,
        more: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.root = root
        self._connected = connected
        self.seed = seed
        self.storage = root / "shop"
        self.sinks = root / "sinks"
        self.sinks.mkdir()
        self._source = root / "readings.jsonl"
        write_source(self._source)
        self._config = dict(config or {})
        self._drivers: list[subprocess.Popen[str]] = []
        self.begin(addresses, within, more)

    def begin(
        self,
        addresses: Sequence[str],
        within: Mapping[int, Sequence[str]] | None = None,
        more: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """Start hosts with these addresses; the others have ended."""
        self.hosts = Hosts(self.root, self.storage, addresses, within, more)
        self._count = len(addresses)

    def drive(self, until: int, **more: Any) -> subprocess.Popen[str]:
        """Begin to run transactions up to this one."""
        hosts = {"hosts": self._count} if self._count else {}
        options: dict[str, Any] = {"storage": str(self.storage), "seed": self.seed, "until": until}
        options |= {"config": {**self._config, **hosts}}
        if self._connected:
            options |= {"sinks": str(self.sinks), "source": str(self._source)}
        with (self.root / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.hosts.shop", json.dumps({**options, **more})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def expected(self, transactions: int, readings: int = 0) -> dict[str, list[list[Any]]]:
        """What is in the views then."""
        history = History(self.seed)
        while history.number < transactions:
            history.step()
        return history.expected(readings)

    def check_sink(self, transactions: int) -> None:
        """It has every transaction, once, with its number."""
        assert written(self.sinks / "by_region.jsonl") == changes_of(self.seed, transactions)

    def replace(self, index: int) -> None:
        """Kill a host, and start one with a new disk."""
        self.hosts.end(index)
        self.lose(self.hosts.directory(index))
        self.hosts.processes[index] = self.hosts.start(index)

    def end(self) -> None:
        """Kill all at once."""
        end(self._drivers)
        self.hosts.close()
        self._count = 0

    def lose(self, *directories: Path) -> None:
        """The disks, or all of them."""
        for directory in directories or [path for path in self.root.iterdir() if path.is_dir()]:
            end_processes_of(directory)  # what a killed host leaves ends by itself, a little later
            shutil.rmtree(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def told(driver: subprocess.Popen[str], key: str) -> Any:
    """What the next line says that has this key."""
    assert driver.stdout is not None
    deadline = time.monotonic() + PATIENCE
    for line in driver.stdout:
        assert time.monotonic() < deadline
        if line.startswith("{") and key in (found := json.loads(line)):
            return found[key]
    raise AssertionError(f"the pipeline ended with code {driver.wait()} before it said {key}")


def kill(driver: subprocess.Popen[str]) -> None:
    """The coordinator, with the driver of Spark."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


__all__ = ["PATIENCE", "Site", "addresses_of", "kill", "told"]
