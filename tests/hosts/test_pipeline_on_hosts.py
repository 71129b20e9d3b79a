"""A pipeline on two real hosts, which are killed: the views are those of one that was never killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.site import Site, expected, told

pytestmark = [pytest.mark.slow(minutes=5), pytest.mark.timeout(1200)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


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
