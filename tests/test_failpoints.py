"""The walk: kill the process at every durable boundary, start it again, and look at everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from penstock.cli import app
from penstock.failpoints import FAILPOINTS
from tests.crash.workload import Mode, changes, sums, table_after, written
from tests.jvm import Jvm, kept_jvm
from tests.servers import Postgres

FURTHER = 60
"""So many transactions later every failpoint has been passed."""


def applies(failpoint: str, mode: Mode) -> bool:
    """Whether a mode gets to a failpoint at all. Programs change in tests/test_changed_program.py,
    checkpoints are copied in tests/sync and, by hosts, in tests/hosts, shards are in
    tests/shard/test_shard_processes.py, replicas in tests/replica/test_replica_processes.py, new generations
    of them in tests/replica/test_take_over.py, and Kafka is in tests/test_kafka_exactly_once.py."""
    if failpoint.startswith(("bootstrap.", "sync.", "host.", "shard.", "binding.", "replica.", "kafka.")):
        return False
    if failpoint.startswith(("journal.begin", "journal.roll-back")):
        return mode.explicit
    return not (failpoint.startswith("journal.skip") and mode.explicit)


@dataclass
class Life:
    """A pipeline that is killed and started again, on one storage and one set of sinks."""

    directory: Path
    mode: Mode
    postgres: str
    jvm: Jvm
    last: int = 0
    workers: int = 2

    def run(self, failpoint: str, further: int = FURTHER) -> bool:
        """Start it, check what it came back with, and let it go on; True if it was killed."""
        storage, sinks = self.directory / "storage", self.directory / "sinks"
        sinks.mkdir(parents=True, exist_ok=True)
        arguments = [str(storage), str(sinks), self.mode, str(self.last + further), str(self.workers)]
        with (
            open(self.directory / "stderr", "w+") as errors,
            subprocess.Popen(
                [sys.executable, "-m", "tests.crash.driver", *arguments, self.postgres],
                env={**os.environ, **self.jvm.environment, "PENSTOCK_FAILPOINT": failpoint},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            if line := process.stdout.readline():
                self.check(json.loads(line))
                process.stdin.write("\n")
                process.stdin.flush()
            if line := process.stdout.readline():
                self.check(json.loads(line))
            process.wait()
            self.jvm.end_application()
            errors.seek(0)
            assert process.returncode in (0, -9), errors.read()[-4000:]
            return process.returncode == -9

    def check(self, seen: dict[str, Any]) -> None:
        """Views and sinks hold exactly the transactions that ended."""
        last = seen["last"]
        assert last >= self.last, "a number was used twice"
        assert seen["open"] in (None, last + 1)
        self.last = last
        table = table_after(last, self.mode)
        assert seen["sums"] == sums(table)
        expected = changes(last, self.mode)
        lines = (self.directory / "sinks" / "everything.jsonl").read_text().splitlines()
        assert written([json.loads(line) for line in lines]) == expected
        appended = DeltaTable(str(self.directory / "sinks" / "appended")).to_pyarrow_table().to_pylist()
        assert written(appended) == expected
        mirrored = DeltaTable(str(self.directory / "sinks" / "mirrored")).to_pyarrow_table().to_pylist()
        assert sorted([row["g"], row["c"], row["s"]] for row in mirrored) == sums(table)
        with psycopg.connect(self.postgres) as connection:
            rows = connection.execute("SELECT g, c, s FROM sums ORDER BY g").fetchall()
        assert [list(row) for row in rows] == sums(table)


@pytest.fixture(params=list(Mode))
def life(request: pytest.FixtureRequest, tmp_path: Path, postgres: Postgres) -> Iterator[Life]:
    mode: Mode = request.param
    name = f"walk_{mode}"
    with psycopg.connect(postgres.uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(postgres.uri(name), autocommit=True) as connection:
        connection.execute("CREATE TABLE sums (g INT PRIMARY KEY, c BIGINT, s BIGINT)")
    with kept_jvm() as jvm:
        yield Life(tmp_path, mode, postgres.uri(name), jvm)


@pytest.mark.slow(minutes=5)
@pytest.mark.timeout(3600)
def test_a_kill_at_any_boundary_changes_nothing(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    points = [point for point in FAILPOINTS if applies(point, life.mode)]
    kills = 0
    for point in points:
        # A replay needs something to replay, and one that is killed is begun again.
        before, times = (["output.after:3"], 2) if point.startswith("replay.") else ([], 1)
        for each in [*before, *[point] * times]:
            assert life.run(each), f"{each} was never reached"
            kills += 1
            with capsys.disabled():
                print(f"{life.mode}: killed at {each}, transaction {life.last}", flush=True)
    life.workers = 4  # another number of partitions
    assert not life.run("", further=3)
    with capsys.disabled():
        print(f"{life.mode}: {len(points)} points, {kills} kills, each equal to the model")


def test_failpoints_are_listed() -> None:
    listed = CliRunner().invoke(app, ["debug", "failpoints"]).output
    assert all(point in listed for point in FAILPOINTS)
