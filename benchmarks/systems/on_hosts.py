"""Penstock on several hosts: on this machine, each with an address, a storage and a Spark worker."""

from __future__ import annotations

import subprocess
import sys

import penstock
from benchmarks.system import CORES, Run
from benchmarks.systems.on_penstock import Inserted
from benchmarks.workload import Answer

HOSTS = 2


class OnHosts(Inserted):
    """The `System` with the processors shared out to hosts."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._hosts: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        storage = self.run.place("storage")
        for index in range(HOSTS):
            command = [sys.executable, "-m", "penstock.cli", "host", "--index", str(index)]
            command += ["--coordinator", str(storage), "--storage", str(self.run.place(f"host-{index}"))]
            self._hosts.append(subprocess.Popen([*command, "--address", f"127.0.0.{index + 2}"]))
        config = {"workers": max(1, CORES // HOSTS), "hosts": HOSTS}
        self.pipeline = penstock.Pipeline(
            "orders", program=self.program(), storage=str(storage), config=config
        )
        self.pipeline.start()
        self.pipeline.query("SELECT count(*) FROM range(1000000)")

    def answer(self) -> Answer:
        self.run.figures.update(self.pipeline.stats()["hosts"]["reads"])
        return super().answer()

    def stop(self) -> None:
        super().stop()
        for host in self._hosts:
            host.terminate()
        for host in self._hosts:
            host.wait()
