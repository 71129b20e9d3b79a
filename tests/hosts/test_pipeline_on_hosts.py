"""A pipeline on two real hosts, which are killed: the views are those of one that was never killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.drive import History

pytestmark = [pytest.mark.slow(minutes=5), pytest.mark.timeout(1200)]

SEED = 7
PATIENCE = 300.0


class Site:
    """A coordinator's storage and two hosts, each with an address of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = root / "shop"
        self.hosts = [self.host(index) for index in range(2)]
        self._drivers: list[subprocess.Popen[str]] = []

    def host(self, index: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock.cli", "host", "--index", str(index)]
        command += ["--coordinator", str(self.storage), "--storage", str(self.root / f"host {index}")]
        command += ["--address", f"127.0.0.{index + 2}"]
        with (self.root / f"host {index}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def drive(self, until: int) -> subprocess.Popen[str]:
        """Begin to run transactions up to this one."""
        options = {"storage": str(self.storage), "seed": SEED, "hosts": 2, "until": until}
        with (self.root / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.hosts.drive", json.dumps(options)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def kill_host(self, index: int) -> None:
        """With SIGKILL, and start it again."""
        self.hosts[index].kill()
        self.hosts[index].wait()
        self.hosts[index] = self.host(index)

    def close(self) -> None:
        for process in [*self._drivers, *self.hosts]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for driver in self._drivers:
            assert driver.stdout is not None
            driver.stdout.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


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


def test_hosts_and_the_coordinator_are_killed(site: Site) -> None:
    driver = site.drive(until=2)
    assert told(driver, "began") == 0
    assert told(driver, "views") == expected(2)
    hosts = told(driver, "stats")["hosts"]
    assert [host["address"] for host in hosts["hosts"]] == ["127.0.0.2", "127.0.0.3"]
    assert driver.wait(60) == 0

    driver = site.drive(until=100)
    assert told(driver, "began") == 2
    assert told(driver, "transaction") == 3
    os.killpg(driver.pid, signal.SIGKILL)  # the coordinator, with the driver of Spark
    driver.wait()

    driver = site.drive(until=6)
    assert told(driver, "began") >= 3, "what was flushed is there"
    site.kill_host(1)
    assert told(driver, "views") == expected(6)
    assert told(driver, "stats")["transaction"] is None
    assert driver.wait(60) == 0
    assert any(site.root.glob("host 0/batches/*/*.arrow"))
    assert any(site.root.glob("host 1/batches/*/*.arrow"))
