"""A pipeline that is killed and started again, and looked at each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from deltalake import DeltaTable

from tests.crash.workload import Mode, changes, sums, table_after, written
from tests.jvm import Jvm, kept_jvm
from tests.servers import Postgres

FURTHER = 60
"""So many transactions later every failpoint has been passed."""


@dataclass
class Life:
    """A pipeline that is killed and started again, on one storage and one set of sinks."""

    directory: Path
    mode: Mode
    postgres: str
    jvm: Jvm
    last: int = 0
    kills: int = 0
    config: Mapping[str, int] = field(default_factory=lambda: {"workers": 2})

    def die(self, failpoint: str) -> None:
        """Be killed there. A replay needs something to replay, and one that is killed is begun again."""
        before, times = (["output.after:3"], 2) if failpoint.startswith("replay.") else ([], 1)
        for each in [*before, *[failpoint] * times]:
            assert self.run(each), f"{each} was never reached"

    def run(self, failpoint: str, further: int = FURTHER) -> bool:
        """Start it, check what it came back with, and let it go on; True if it was killed."""
        storage, sinks = self.directory / "storage", self.directory / "sinks"
        sinks.mkdir(parents=True, exist_ok=True)
        arguments = [str(storage), str(sinks), self.mode, str(self.last + further), json.dumps(self.config)]
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
            killed = process.returncode == -9
            self.kills += killed
            return killed

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


@contextmanager
def life_of(name: str, directory: Path, mode: Mode, server: Postgres) -> Iterator[Life]:
    """One that has not begun, with a database of this name for its sinks."""
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.uri(name), autocommit=True) as connection:
        connection.execute("CREATE TABLE sums (g INT PRIMARY KEY, c BIGINT, s BIGINT)")
    with kept_jvm() as jvm:
        yield Life(directory, mode, server.uri(name), jvm)
