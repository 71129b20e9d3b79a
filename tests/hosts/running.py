"""Coordinators and hosts for tests: real servers on loopback, and a process that sleeps instead of Spark."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.hosts.agent import create_app
from penstock.hosts.client import Agent
from penstock.hosts.coordinator import Coordinator
from penstock.hosts.duty import Duty
from penstock.hosts.messages import Admission, HostIndex, Membership
from penstock.hosts.process import Host, Options
from penstock.hosts.serving import Server
from penstock.hosts.worker import SparkWorker
from penstock.storage.files import Content, content_of, make_directory

PIPELINE = "4d1f0c2e"
MASTER = "spark://127.0.0.1:7077"
PATIENCE = 240.0

RUN = "0123abcd"
FIRST = f"000000000001-{RUN}-0001"
SECOND = f"000000000002-{RUN}-0001"
OTHER_RUN = "000000000001-ffffffff-0001"


def wait_until(holds: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} does not come true"
        time.sleep(0.02)


class Sleeper(SparkWorker):
    """Does nothing, in a process like that of the real one."""

    def _command(self, admission: Admission, properties: Path) -> list[str]:
        return ["sleep", "1000"]


class Running:
    """A host in a thread of this process."""

    def __init__(self, options: Options, worker: type[SparkWorker] = Sleeper) -> None:
        self.said: list[str] = []
        self.error: BaseException | None = None
        self.workers: list[SparkWorker] = []
        self._worker = worker
        self.host = Host(options, self.said.append, self._make)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _make(self, directory: Path, index: int, address: str, memory: str) -> SparkWorker:
        self.workers.append(self._worker(directory, index, address, memory))
        return self.workers[-1]

    def _run(self) -> None:
        try:
            self.host.run()
        except BaseException as error:
            self.error = error
            self.said.append(f"ended: {error!r}")

    @property
    def pid(self) -> int | None:
        return self.workers[0].pid if self.workers else None

    def has_said(self, text: str) -> bool:
        return any(text in said for said in self.said)

    def refusal(self) -> str:
        """The error that ends it."""
        self._thread.join(PATIENCE)
        assert self.error is not None
        return str(self.error)

    def stop(self) -> None:
        self.host.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextmanager
def coordinating(directory: Path, count: int = 2, pipeline: str = PIPELINE) -> Iterator[Coordinator]:
    directory.mkdir(exist_ok=True)
    coordinator = Coordinator(directory, pipeline, count, workers=1)
    coordinator.open(MASTER)
    try:
        yield coordinator
    finally:
        coordinator.close()


@contextmanager
def hosting(options: Options, worker: type[SparkWorker] = Sleeper) -> Iterator[Running]:
    running = Running(options, worker)
    try:
        yield running
    finally:
        running.stop()


class _Noted:
    """A lock that tells that somebody waits for it."""

    def __init__(self, waiting: list[str]) -> None:
        self._lock = threading.Lock()
        self._waiting = waiting

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waiting.append(threading.current_thread().name)
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Alone:
    """The agent of a host without its process, and a client that it lets in."""

    def __init__(self, directory: Path, index: int = 1, count: int = 2) -> None:
        make_directory(directory / "batches")
        self.directory = directory
        self.membership = Membership(PIPELINE, secrets.token_hex(8), HostIndex(index, count))
        self.token = secrets.token_urlsafe(16)
        self.duty = Duty(directory, "127.0.0.1")
        self.waiting: list[str] = []
        """Each request that waits, or has waited, to change something."""
        self.duty.changing = _Noted(self.waiting)  # type: ignore[assignment]
        self._server = Server("127.0.0.1")
        self._server.start(create_app(self.duty), "agent")
        self.url = self._server.url
        self.agent = self.client(self.token, self.membership)

    def client(self, token: str, membership: Membership) -> Agent:
        return Agent(self.url, token, membership, 10.0)

    def join(self) -> None:
        self.duty.take(self.membership, self.token)

    def put(self, trace: str, name: str, data: bytes) -> Content:
        """A batch, as a task would write it."""
        path = self.path(trace, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return content_of(path)

    def path(self, trace: str, name: str) -> Path:
        return self.directory / "batches" / trace / f"{name}.arrow"

    def files(self) -> list[str]:
        root = self.directory / "batches"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def close(self) -> None:
        self.agent.close()
        self._server.close()
