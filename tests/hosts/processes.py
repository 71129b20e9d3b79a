"""Real hosts, as a user starts them: `penstock host`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil


def addresses_of(count: int, first: int = 2) -> list[str]:
    """One for each host."""
    return [f"127.0.0.{first + index}" for index in range(count)]


class Hosts:
    """The hosts of a pipeline, each with an address and a directory of its own."""

    def __init__(
        self,
        root: Path,
        storage: Path,
        addresses: Sequence[str],
        within: Mapping[int, Sequence[str]] | None = None,
        more: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """`within`: the command that runs a host where it has to be run; `more` options of each."""
        self._root = root
        self._storage = storage
        self._addresses = addresses
        self.within = dict(within or {})
        self._more = more or {}
        self.processes = [self.start(index) for index in range(len(addresses))]

    def start(self, index: int) -> subprocess.Popen[bytes]:
        command = [*self.within.get(index, ())]
        command += [sys.executable, "-m", "penstock.cli", "host", "--index", str(index)]
        command += ["--coordinator", str(self._storage), "--storage", str(self.directory(index))]
        command += ["--address", self._addresses[index], *self._more.get(index, ())]
        with (self._root / f"host {index}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def directory(self, index: int) -> Path:
        return self._root / f"host {index}"

    def end(self, *indexes: int) -> None:
        """With SIGKILL, all at once."""
        for index in indexes:
            self.processes[index].kill()
        for index in indexes:
            self.processes[index].wait()

    def kill(self, *indexes: int) -> None:
        """The same, and start them again."""
        self.end(*indexes)
        for index in indexes:
            self.processes[index] = self.start(index)

    def kill_spark(self, index: int) -> None:
        """The Spark worker of a host, and all that it started."""
        for process in psutil.Process(self.processes[index].pid).children(recursive=True):
            process.kill()

    def close(self) -> None:
        end(self.processes)


def end(processes: Iterable[subprocess.Popen[Any]]) -> None:
    """With SIGKILL, and all that they started with them."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
