"""The walk of tests/test_failpoints.py on two hosts: the coordinator is killed at every durable boundary.

A host is killed at those of its own; those with an object store are in
tests/hosts/test_parts_of_checkpoints.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.failpoints import FAILPOINTS
from tests.crash.life import Life, life_of
from tests.crash.workload import Mode
from tests.hosts.processes import Hosts, addresses_of
from tests.hosts.site import PATIENCE, Site, told
from tests.servers import Postgres
from tests.test_failpoints import applies

EVERY = int(os.environ.get("PENSTOCK_HOST_WALK", "1"))
"""Only every so many of the points."""


@pytest.fixture
def life(tmp_path: Path, postgres: Postgres) -> Iterator[Life]:
    hosts = Hosts(tmp_path, tmp_path / "storage", addresses_of(2))
    try:
        with life_of("walk_on_hosts", tmp_path, Mode.EXPLICIT, postgres) as found:
            found.config = {"workers": 1, "hosts": 2}
            yield found
    finally:
        hosts.close()


@pytest.mark.slow(minutes=4)
@pytest.mark.timeout(7200)
def test_the_coordinator_is_killed_at_any_boundary(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    points = [point for point in FAILPOINTS if applies(point, life.mode)][::EVERY]
    for point in points:
        life.die(point)
        with capsys.disabled():
            print(f"on hosts: killed at {point}, transaction {life.last}", flush=True)
    assert not life.run("", further=3)
    with capsys.disabled():
        print(f"on hosts: {len(points)} points, {life.kills} kills, each equal to the model")


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("point", ["host.synced", "host.swept"])
def test_a_host_is_killed_at_its_own_boundaries(tmp_path: Path, point: str) -> None:
    """It makes batches durable for a checkpoint; at a start it deletes those that none needs."""
    armed = {1: ("env", f"PENSTOCK_FAILPOINT={point}")}
    often = {"fault_tolerance": {"checkpoint_interval_secs": 1}}
    with Site(tmp_path, addresses_of(2), often, within=armed) as site:
        if point == "host.swept":
            driver = site.drive(until=2)
            assert told(driver, "views") == site.expected(2)
            assert driver.wait(PATIENCE) == 0
        driver = site.drive(until=6)
        assert site.hosts.processes[1].wait(PATIENCE) == -signal.SIGKILL
        site.hosts.within.clear()
        site.hosts.processes[1] = site.hosts.start(1)
        assert told(driver, "views") == site.expected(6)
        assert driver.wait(PATIENCE) == 0
        site.check_sink(6)
