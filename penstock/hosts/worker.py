"""The Spark worker of a host: started for one incarnation, started again if it dies, ended without a trace.

It and all that it starts, executors and their Python workers, carry in their environment whose they are. So
whatever of them is left of an earlier time is found, and ended, before new ones start.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import psutil

from penstock.errors import HostError
from penstock.hosts.messages import Admission
from penstock.hosts.private import write_private
from penstock.storage.files import explained
from penstock.trace.host import ENVIRONMENT

_STARTS = 3
_STARTS_SECONDS = 600.0
_END_SECONDS = 10.0
_LOG_LINES = 10
_REGISTERED = b"Successfully registered with master"
_PR_SET_PDEATHSIG = 1

_DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A worker only starts executors: it shall start fast, and take little."""


class Worker(Protocol):
    """What runs, or identifies, Spark's executors on a host."""

    @property
    def pid(self) -> int | None:
        """None if nothing runs that this host started."""

    def begin(self) -> None:
        """End what an earlier process of this host left."""

    def start(self, admission: Admission) -> None:
        """Be there for an incarnation."""

    def look(self, say: Callable[[str], None]) -> None:
        """Look whether all is well; called every second."""

    def stop(self) -> None:
        """Be there for none."""


def identity(admission: Admission, index: int, directory: Path) -> str:
    """What tasks on a host must know of it, as JSON; its token is part of it."""
    whose = {
        "pipeline": admission.pipeline,
        "incarnation": admission.incarnation,
        "index": index,
        "count": admission.count,
        "directory": str(directory),
        "token": admission.token,
        "process": admission.process,
    }
    return json.dumps(whose)


class SparkWorker:
    """Of the host with this storage directory."""

    def __init__(self, directory: Path, index: int, address: str, memory: str) -> None:
        self._directory = directory
        self._index = index
        self._address = address
        self._memory = memory
        self._admission: Admission | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starts: deque[float] = deque()
        self._registered = False

    @property
    def log(self) -> Path:
        return self._directory / "worker.log"

    @property
    def _local(self) -> Path:
        """What Spark exchanges between tasks. Not below the worker's own directory, whose old parts it
        deletes."""
        return self._directory / "spark-local"

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def begin(self) -> None:
        end_processes_of(self._directory)

    def start(self, admission: Admission) -> None:
        """Begin to run for an incarnation. The thread that calls this must live as long as the worker."""
        self._admission = admission
        self._starts.clear()
        self.log.unlink(missing_ok=True)
        self._start(admission)

    def look(self, say: Callable[[str], None]) -> None:
        """Start it again if it has died; `HostError` if it does so again and again."""
        if self._process is None or self._admission is None:
            return
        code = self._process.poll()
        if code is None:
            if not self._registered and _REGISTERED in self._log_bytes():
                self._registered = True
                say("The Spark worker is registered with the pipeline's Spark master.")
            return
        now = time.monotonic()
        self._starts.append(now)
        while now - self._starts[0] > _STARTS_SECONDS:
            self._starts.popleft()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if len(self._starts) > _STARTS:
            raise HostError(
                f"the Spark worker of host {self._index} {how}, the {len(self._starts)}th time in"
                f" {_STARTS_SECONDS / 60:.0f} minutes; {self.log} says why: {self._last_lines()}",
                host=self._index,
            )
        say(f"The Spark worker {how}; it is started again. Its log is {self.log}")
        self._start(self._admission)

    def stop(self) -> None:
        """End it and all that it started. It has nothing to save, so it is not asked."""
        self._admission = None
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(_END_SECONDS)
        end_processes_of(self._directory)

    def _start(self, admission: Admission) -> None:
        end_processes_of(self._directory)
        local = self._local
        with explained(f"the Spark worker of host {self._index} cannot be started", "Check the disk."):
            shutil.rmtree(local, ignore_errors=True)
            local.mkdir(parents=True, exist_ok=True)
            properties = self._directory / "worker.properties"
            write_private(properties, _properties(admission))
            self._registered = False
            with open(self.log, "ab", opener=_private) as log:
                self._process = subprocess.Popen(
                    self._command(admission, properties),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment(admission)},
                    start_new_session=True,
                    preexec_fn=_dies_with(os.getpid()),
                )

    def _command(self, admission: Admission, properties: Path) -> list[str]:
        return [
            str(_spark() / "bin" / "spark-class"),
            "org.apache.spark.deploy.worker.Worker",
            *("--host", self._address),
            *("--cores", str(admission.workers)),
            *("--memory", self._memory),
            *("--work-dir", str(self._directory / "spark")),
            *("--webui-port", "0"),
            *("--properties-file", str(properties)),
            admission.master,
        ]

    def _environment(self, admission: Admission) -> dict[str, str]:
        return {
            ENVIRONMENT: identity(admission, self._index, self._directory),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(_spark()),
            "SPARK_LOCAL_IP": self._address,
            "SPARK_LOCAL_DIRS": str(self._local),
            "SPARK_DAEMON_MEMORY": os.environ.get("SPARK_DAEMON_MEMORY", "256m"),
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_DAEMON_JAVA_OPTS", _DAEMON_OPTIONS),
        }

    def _log_bytes(self) -> bytes:
        try:
            return self.log.read_bytes()
        except OSError:
            return b""

    def _last_lines(self) -> str:
        return " | ".join(self._log_bytes().decode("utf-8", "replace").splitlines()[-_LOG_LINES:])


def _properties(admission: Admission) -> str:
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": admission.spark_secret,
        "spark.ui.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.worker.cleanup.enabled": "true",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _spark() -> Path:
    """Where PySpark is installed, which need not be imported for that."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise HostError("PySpark is not installed on this host")
    return Path(found.origin).parent


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _dies_with(parent: int) -> Callable[[], None] | None:
    """What a new process does first, so that it is killed when the one that starts it ends, however."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def end_processes_of(directory: Path) -> None:
    """Kill whatever works for the host with this storage directory; whoever calls holds its lock."""
    deadline = time.monotonic() + _END_SECONDS
    while found := list(_processes_of(directory)):
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue  # it ended meanwhile
        psutil.wait_procs(found, timeout=1.0)
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in found)
            raise HostError(f"processes that work in {directory} cannot be ended: {pids}")


def _processes_of(directory: Path) -> Iterator[psutil.Process]:
    for pid in psutil.pids():  # each anew: what psutil remembers of processes is not for several threads
        try:
            process = psutil.Process(pid)
            whose = process.environ().get(ENVIRONMENT)
            if (
                whose is not None
                and process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and json.loads(whose)["directory"] == str(directory)
            ):
                yield process
        except (psutil.Error, OSError, ValueError, KeyError, TypeError):
            continue  # it ended meanwhile, or is another user's
