"""A pipeline on one machine and on hosts, which are killed: views and sink are those of the history."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from tests.hosts.processes import Hosts, addresses_of, end
from tests.hosts.shop import READ, History, changes_of, write_source, written
from tests.oracle.history import seed_of_run

PATIENCE = 300.0
KILLS = int(os.environ.get("PENSTOCK_KILLS", "10"))


class Site:
    """A pipeline's storage, its sinks, and its hosts, if it has several. `within`: see `Hosts`."""

    def __init__(
        self,
        root: Path,
        addresses: Sequence[str],
        seed: int,
        within: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.root = root
        self.count = max(1, len(addresses))
        self.seed = seed
        self.storage = root / "shop"
        self.sinks = root / "sinks"
        self.sinks.mkdir()
        self.source = root / "readings.jsonl"
        write_source(self.source)
        self.hosts = Hosts(root, self.storage, addresses, within)
        self._drivers: list[subprocess.Popen[str]] = []

    def drive(self, until: int, **more: Any) -> subprocess.Popen[str]:
        """Begin to run transactions up to this one."""
        options = {"storage": str(self.storage), "seed": self.seed, "hosts": self.count, "until": until}
        options |= {"sinks": str(self.sinks), "source": str(self.source), **more}
        with (self.root / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.hosts.shop", json.dumps(options)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def expected(self, transactions: int, readings: int = 0) -> dict[str, list[list[Any]]]:
        history = History(self.seed)
        while history.number < transactions:
            history.step()
        return history.expected(readings)

    def check_sink(self, transactions: int) -> None:
        """It has every transaction, once, with its number."""
        assert written(self.sinks / "by_region.jsonl") == changes_of(self.seed, transactions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        end(self._drivers)
        self.hosts.close()


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


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_hosts_comes_to_the_same(tmp_path: Path, count: int) -> None:
    """Numbers of transactions, one that is rolled back, a checkpoint, a journal that is replayed, a sink, and
    two connectors that read the same rows for a table with a key."""
    with Site(tmp_path, addresses_of(count) if count > 1 else (), seed=7) as site:
        driver = site.drive(until=100)
        assert told(driver, "began") == 0
        assert [told(driver, "transaction") for _ in range(4)] == [1, 2, 3, 4]
        kill(driver)

        driver = site.drive(until=5, read=True)
        assert told(driver, "began") in (4, 5), "what was flushed is there"
        assert told(driver, "views") == site.expected(5, READ)
        stats = told(driver, "stats")
        assert driver.wait(PATIENCE) == 0
        site.check_sink(5)
        if count > 1:
            assert [host["address"] for host in stats["hosts"]["hosts"]] == addresses_of(count)
            reads = stats["hosts"]["reads"]
            assert reads["written"] > sum(reads.values()) / 2, "state is used where it is"
            for index in range(count):
                assert any(site.hosts.directory(index).glob("batches/*/*.arrow")), index


def trouble(site: Site, driver: subprocess.Popen[str], chance: random.Random) -> str:
    """SIGKILL for somebody; a coordinator is not started again."""
    one = chance.randrange(site.count)
    what = chance.choice(["a host", "its Spark worker", "both hosts", "the coordinator", "it and a host"])
    if what in ("the coordinator", "it and a host"):
        kill(driver)
    if what in ("a host", "it and a host"):
        site.hosts.kill(one)
    elif what == "both hosts":
        site.hosts.kill(0, 1)
    elif what == "its Spark worker":
        site.hosts.kill_spark(one)
    return f"{what} (host {one})"


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(3600)
def test_whoever_is_killed_at_any_time_nothing_is_lost_or_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = seed_of_run()
    chance = random.Random(seed)
    with Site(tmp_path, addresses_of(2), seed) as site:
        driver, last = site.drive(until=10_000), 0
        told(driver, "began")
        for _ in range(KILLS):
            last = told(driver, "transaction")
            time.sleep(2 * chance.random())
            done = trouble(site, driver, chance)
            with capsys.disabled():
                print(f"after transaction {last}: killed {done}", flush=True)
            if driver.poll() is not None:
                driver = site.drive(until=10_000)
                assert told(driver, "began") >= last, "what was flushed is there"
        last = told(driver, "transaction")
        kill(driver)
        driver = site.drive(until=last + 2)
        began = told(driver, "began")
        assert told(driver, "views") == site.expected(max(began, last + 2))
        assert driver.wait(PATIENCE) == 0
        site.check_sink(max(began, last + 2))
