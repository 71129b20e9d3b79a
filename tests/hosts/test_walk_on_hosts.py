"""The walk of tests/test_failpoints.py on two hosts: the coordinator is killed at every durable boundary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.failpoints import FAILPOINTS
from tests.crash.life import Life, life_of
from tests.crash.workload import Mode
from tests.hosts.processes import Hosts, addresses_of
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
