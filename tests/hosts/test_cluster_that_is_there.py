"""Hosts beside the executors of a standalone cluster that somebody else runs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.hosts.worker import _spark
from penstock.trace.host import FILE_ENVIRONMENT
from tests.hosts.processes import end
from tests.hosts.running import wait_until
from tests.hosts.shop import READ
from tests.hosts.site import PATIENCE, Site, addresses_of, kill, told


class Cluster:
    """A master and a worker for each address, none of which knows anything of Penstock but a path."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "--host", "127.0.0.1", "--port", "0")
        log = root / "master.log"
        wait_until(lambda: re.search(r"Starting Spark master at (\S+)", log.read_text()), "a master")
        found = re.search(r"Starting Spark master at (\S+)", log.read_text())
        assert found is not None
        self.url = found[1]

    def worker(self, address: str, file: Path) -> None:
        """With one core, whose executors find their host by a file."""
        options = ("--host", address, "--cores", "1", "--memory", "2g")
        work = ("--work-dir", str(self._root / f"work {address}"))
        told = {FILE_ENVIRONMENT: str(file), "SPARK_LOCAL_IP": address}
        self._start("worker", *options, *work, self.url, **told)

    def _start(self, kind: str, *options: str, **environment: str) -> None:
        command = [str(_spark() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}.{kind.title()}"]
        with (self._root / f"{kind}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *options],
                env={**os.environ, "SPARK_HOME": str(_spark()), "SPARK_DAEMON_MEMORY": "256m", **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)


@contextmanager
def cluster(root: Path) -> Iterator[Cluster]:
    found = Cluster(root)
    try:
        yield found
    finally:
        end(found.processes)


@pytest.mark.slow(minutes=1)
@pytest.mark.timeout(1200)
def test_hosts_beside_executors(tmp_path: Path) -> None:
    addresses = addresses_of(2)
    files = [tmp_path / f"beside {index}.json" for index in range(2)]
    beside = {index: ("--beside", str(file)) for index, file in enumerate(files)}
    with cluster(tmp_path) as there:
        for address, file in zip(addresses, files, strict=True):
            there.worker(address, file)
        config = {"coordinator": {"master": there.url}, "spark": {"spark.executor.memory": "1g"}}
        with Site(tmp_path, addresses, config, more=beside) as site:
            driver = site.drive(until=100)
            assert [told(driver, "transaction") for _ in range(2)] == [1, 2]
            assert all(file.stat().st_mode & 0o777 == 0o600 for file in files), "a token is in it"
            kill(driver)
            driver = site.drive(until=3, read=True)
            assert told(driver, "views") == site.expected(3, READ)
            reads = told(driver, "stats")["hosts"]["reads"]
            assert reads["written"] > sum(reads.values()) / 2, "state is used where it is"
            assert driver.wait(PATIENCE) == 0
            site.check_sink(3)
            wait_until(lambda: not any(file.exists() for file in files), "that the files are gone")
