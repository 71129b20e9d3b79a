"""Real replicas, as a user starts them: `penstock replica`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock.replica.promotion import Told, progress_key
from penstock.shard.keeping import Keeper
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.writer import ShardWriter
from tests.jvm import Jvm
from tests.shard.rows import ticking

GROUP = "shop"
GROUPS = 7
LEASE = 2
PATIENCE = 240


class Site:
    """A group in a directory, a program that follows files, and what its outputs have."""

    def __init__(self, root: Path, *, every: float = 0.1, grows: bool = False) -> None:
        """Rows come `every` so many seconds, in files of their own or in one that `grows`."""
        self.root = root
        self.rows = 0
        self.place = PlaceConfig(str(root / "shared"))
        (root / "in").mkdir()
        for generation in (0, 1):
            self.path(generation).write_text(self._program(generation))
        self.every, self._grows = every, grows
        self._stopped = threading.Event()
        self._load = threading.Thread(target=self._write, daemon=True)

    def path(self, generation: int) -> Path:
        """The program of a generation: n + 1 times the sums."""
        return self.root / f"shop {generation}.sql"

    def _program(self, generation: int) -> str:
        source = {"path": str(self.root / "in" / "*.json"), "follow": True}
        format_ = {"name": "json", "config": {"update_format": "raw"}}
        read = [{"name": "lines", "transport": {"name": "file_input", "config": source}, "format": format_}]
        shard = {"name": "shard_output", "config": {"uri": self.place.uri, "name": "sums"}}
        file = {"name": "file_output", "config": {"path": str(self._out(generation))}}
        outs = [
            {"name": "shared", "transport": shard},
            {"name": f"file {generation}", "transport": file, "format": {"name": "json"}},
        ]
        return f"""
        CREATE TABLE t (id BIGINT, g INT) WITH ('connectors' = '{json.dumps(read)}');
        CREATE MATERIALIZED VIEW sums WITH ('connectors' = '{json.dumps(outs)}') AS
            SELECT g, count(*) AS c, sum({generation + 1} * id) AS s FROM t GROUP BY g;
        """

    def _out(self, generation: int) -> Path:
        return self.root / f"out {generation}.json"

    # -- input ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Write rows, a few at a time, until `finish`. The table has no key: a row that is read twice, or not
        at all, is seen."""
        self._load.start()

    def _write(self) -> None:
        while not self._stopped.wait(self.every):
            ids = range(self.rows, self.rows + 3)
            text = "".join(json.dumps({"id": id_, "g": id_ % GROUPS}) + "\n" for id_ in ids)
            part = self.root / "in" / f"{'rows' if self._grows else f'{self.rows:08}'}.part"
            path = part.with_suffix(".json")
            if self._grows and path.exists():
                with path.open("a") as file:
                    file.write(text)
            else:
                part.write_text(text)
                part.rename(path)
            self.rows += 3

    def finish(self, generation: int = 0) -> None:
        """Write no more, and wait until the outputs have everything, once, as a generation computes it."""
        self._stopped.set()
        self._load.join()
        expected: Counter[tuple[Any, ...]] = Counter()
        for g in range(GROUPS):
            ids = range(g, self.rows, GROUPS)
            expected[g, len(ids), (generation + 1) * sum(ids)] = 1
        deadline = time.monotonic() + PATIENCE
        while (found := (self.shard(), self.file(generation))) != (expected, expected):
            assert time.monotonic() < deadline, (found, expected)
            time.sleep(0.2)

    # -- what there is --------------------------------------------------------------------------

    @property
    def upper(self) -> int:
        """The first transaction that the shard does not have."""
        return self._upper("sums")

    @property
    def decided(self) -> int:
        """The last transaction that the group decided on."""
        return self._upper(f"{GROUP}/binding") - 1

    def _upper(self, name: str) -> int:
        place = self.place.opened()
        try:
            return Shard.open(place, name).upper if place.log.numbers(name) else 0
        finally:
            place.close()

    def told(self, generation: int) -> Told | None:
        """What the replica of a generation that does not run yet told last."""
        place = self.place.opened()
        try:
            keys = place.blobs.keys(progress_key(GROUP, generation, "").rstrip("/"))
            found = place.blobs.get(keys[0]) if keys else None
        finally:
            place.close()
        return None if found is None else Told(**json.loads(found))

    def promote(self, generation: int, *options: str) -> subprocess.CompletedProcess[str]:
        """As an operator does it."""
        command = [sys.executable, "-m", "penstock.cli", "promote", GROUP, str(generation)]
        command += ["--group", self.place.uri, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def wait_for(self, transaction: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.upper <= transaction:
            assert time.monotonic() < deadline, f"nobody gets to transaction {transaction}"
            time.sleep(0.05)

    def shard(self) -> Counter[tuple[Any, ...]]:
        """The rows of the shard."""
        place = self.place.opened()
        try:
            shard = Shard.open(place, "sums")
            rows = shard.snapshot(shard.upper - 1).to_pylist()
        finally:
            place.close()
        return Counter({(row["g"], row["c"], row["s"]): row["_weight"] for row in rows})

    def file(self, generation: int = 0) -> Counter[tuple[Any, ...]]:
        """What the changes in the file come to; each transaction is there once, in order."""
        found: Counter[tuple[Any, ...]] = Counter()
        path = self._out(generation)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        numbers = [record["_transaction"] for record in records]
        assert numbers == sorted(numbers)
        for record in sorted(records, key=lambda one: (one["_transaction"], one["_change_type"])):
            row = (record["g"], record["c"], record["s"])
            found[row] += record["_weight"] * (1 if record["_change_type"] == "insert" else -1)
            assert found[row] in (0, 1), record
        return +found

    def leftover(self) -> list[str]:
        """Objects that nobody needs, after somebody has cleaned up."""
        place = self.place.opened()
        try:
            shard = Shard.open(place, "sums", lease=1e-9)
            keeper = Keeper(shard, ShardWriter(shard, "test"), clock=ticking())
            found: list[str] = []
            for _ in range(20):  # it has to see twice, one after the other, that the dead do not move
                keeper.keep()
                found = sorted({*place.blobs.keys("sums/parts")} - shard.machine.refresh().keys)
                if not found:
                    break
            return found
        finally:
            place.close()


@dataclass(frozen=True)
class Memory:
    """What is resident of a replica: its driver, its JVM, and Spark's Python workers."""

    python: int
    java: int
    workers: int

    @property
    def total(self) -> int:
        return self.python + self.java + self.workers

    def __str__(self) -> str:
        return f"{self.total} MB ({self.python} python, {self.java} java, {self.workers} workers)"


class Replica:
    """One process."""

    def __init__(
        self,
        site: Site,
        name: str,
        failpoint: str = "",
        *,
        generation: int = 0,
        after: Path | None = None,
        jvm: Jvm | None = None,
    ) -> None:
        """With a failpoint it dies there; if `after` is given, not before that file is there. With a `jvm` it
        starts none of its own."""
        self.name = name
        self._jvm = jvm
        command = [sys.executable, "-m", "penstock.cli", "replica", str(site.path(generation))]
        command += ["--group", site.place.uri, "--storage", str(site.root / name), "--workers", "1"]
        command += ["--lease", str(LEASE), "--name", GROUP, "--generation", str(generation)]
        kept = {} if jvm is None else jvm.environment
        environment = {**os.environ, **kept, "PENSTOCK_FAILPOINT": failpoint}
        if after is not None:
            environment["PENSTOCK_FAILPOINT_AFTER"] = str(after)
        self._path = site.root / f"{name}.log"
        with self._path.open("a") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """To the process and all that it started: its JVM, and Spark's Python workers."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait(timeout=60)

    def wait_until_it_runs(self) -> None:
        """What is interrupted before it runs ends in other ways: Python itself may not have begun yet."""
        deadline = time.monotonic() + PATIENCE
        while "Running ·" not in self._path.read_bytes()[self._began :].decode(errors="replace"):
            assert time.monotonic() < deadline, self.said[-2000:]
            assert self.runs, self.said[-2000:]
            time.sleep(0.2)

    def stop(self) -> None:
        """As Ctrl-C would."""
        self._process.send_signal(signal.SIGINT)

    @property
    def code(self) -> int:
        """How it ended."""
        code = self._process.wait(timeout=300)
        self.signal(signal.SIGKILL)  # the JVM of one that a failpoint killed
        if self._jvm is not None:
            self._jvm.end_application()
        return code

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def memory(self) -> Memory:
        """What its processes take, in MB."""
        driver = psutil.Process(self._process.pid)
        found = {"python": driver.memory_info().rss, "java": 0, "workers": 0}
        for process in driver.children(recursive=True):
            try:
                kind = "java" if process.name() == "java" else "workers"
                found[kind] += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return Memory(**{kind: size >> 20 for kind, size in found.items()})

    @property
    def said(self) -> str:
        return self._path.read_text()
