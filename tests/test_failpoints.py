"""The walk: kill the process at every durable boundary, start it again, and look at everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.failpoints import FAILPOINTS
from tests.crash.life import Life, life_of
from tests.crash.workload import Mode
from tests.servers import Postgres


def applies(failpoint: str, mode: Mode) -> bool:
    """Whether a mode gets to a failpoint at all. Programs change in tests/test_changed_program.py,
    checkpoints are copied in tests/sync, shards are in tests/shard/test_shard_processes.py, replicas in
    tests/replica/test_replica_processes.py, new generations of them in tests/replica/test_take_over.py, and
    Kafka is in tests/test_kafka_exactly_once.py. On several hosts: tests/hosts/test_walk_on_hosts.py."""
    if failpoint.startswith(("bootstrap.", "sync.", "host.", "shard.", "binding.", "replica.", "kafka.")):
        return False
    if failpoint.startswith(("journal.begin", "journal.roll-back")):
        return mode.explicit
    return not (failpoint.startswith("journal.skip") and mode.explicit)


@pytest.fixture(params=list(Mode))
def life(request: pytest.FixtureRequest, tmp_path: Path, postgres: Postgres) -> Iterator[Life]:
    mode: Mode = request.param
    with life_of(f"walk_{mode}", tmp_path, mode, postgres) as found:
        yield found


@pytest.mark.slow(minutes=5)
@pytest.mark.timeout(3600)
def test_a_kill_at_any_boundary_changes_nothing(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    points = [point for point in FAILPOINTS if applies(point, life.mode)]
    for point in points:
        life.die(point)
        with capsys.disabled():
            print(f"{life.mode}: killed at {point}, transaction {life.last}", flush=True)
    life.config = {"workers": 4}  # another number of partitions
    assert not life.run("", further=3)
    with capsys.disabled():
        print(f"{life.mode}: {len(points)} points, {life.kills} kills, each equal to the model")


def test_failpoints_are_listed() -> None:
    listed = CliRunner().invoke(app, ["debug", "failpoints"]).output
    assert all(point in listed for point in FAILPOINTS)
