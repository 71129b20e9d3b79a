"""The batches of a pipeline on several hosts: each lies on the host whose task wrote it.

What tasks do with them they do among themselves (`penstock/trace/host.py`). This is the driver's side: it
asks the hosts' agents to make batches durable, to look at them and to delete them, and fetches those that the
driver itself has to read, which are the changes of views that outputs get.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.errors import DamagedError, HostError, HostLostError, PenstockError, StateError
from penstock.hosts.client import Agent
from penstock.hosts.coordinator import Coordinator
from penstock.hosts.waits import Waits
from penstock.storage.files import Content, make_directory
from penstock.trace.files import BatchFiles, Copies, Size, Sizes

_log = logging.getLogger("penstock")

T = TypeVar("T")
_LOOK_SECONDS = 0.2


class HostFiles(BatchFiles):
    """Asks the agents. `directory` is where the driver keeps what it fetched."""

    def __init__(self, directory: Path, coordinator: Coordinator, stopped: Callable[[], bool]) -> None:
        super().__init__(directory)
        self.hosts = coordinator.count
        self._coordinator = coordinator
        self._stopped = stopped
        self.waits = Waits()
        self._copies = Copies(directory)
        self._looking = threading.Lock()
        self._processes: list[str] = []
        self._runs: dict[str, int] = {}
        self._pool = ThreadPoolExecutor(coordinator.count, thread_name_prefix="penstock hosts")
        self._gone: SimpleQueue[Collection[tuple[str, str]] | None] = SimpleQueue()
        self._remover = threading.Thread(target=self._remove, name="penstock removing", daemon=True)
        self._remover.start()

    @property
    def addresses(self) -> list[str]:
        return self._coordinator.addresses()

    def close(self) -> None:
        self._gone.put(None)
        self._remover.join()
        self._pool.shutdown()

    def at_hand(self, trace: str, name: str, size: Size) -> Path:
        path = self._copies.path(trace, name, size.checksum)
        try:
            while not path.exists():
                make_directory(path.parent)
                try:
                    self._coordinator.agent(size.host).fetch(trace, name, size.content, path)
                except HostLostError as error:
                    self._pause(error)
                    self._wait()
        finally:
            self.waits.over()
        return path

    def url_of(self, path: str) -> str | None:
        return self._coordinator.url_of(Path(path))

    def facts(self, traces: Sizes, run: str, program: str) -> Mapping[str, Any]:
        return {
            "program": [self._number(run), program],
            "pipeline": self._coordinator.pipeline,
            "incarnation": self._coordinator.incarnation,
            "agents": self._coordinator.urls(),
            "processes": self._coordinator.processes(),
            "where": {
                trace: {name: _place(size) for name, size in batches.items()}
                for trace, batches in traces.items()
            },
        }

    def _number(self, run: str) -> int:
        """Of an engine, counted from the first that ran something."""
        with self._looking:
            return self._runs.setdefault(run, len(self._runs) + 1)

    def note(self, facts: Any, trace: str, name: str, size: Size) -> None:
        facts["where"].setdefault(trace, {})[name] = _place(size)

    def returned(self) -> Collection[int]:
        with self._looking:
            before, self._processes = self._processes, self._coordinator.processes()
            return _other(before, self._processes)

    def returned_since(self, facts: Any) -> Collection[int]:
        return _other(facts["processes"], self._coordinator.processes())

    def wait(self) -> None:
        """Wait until every host answers; `StateError` if the pipeline is stopped meanwhile."""
        try:
            self._wait()
        finally:
            self.waits.over()

    def _wait(self) -> None:
        said: int | None = None
        while (away := self._away()) is not None:
            if away.host != said:  # why it does not answer varies
                _log.warning("waiting for a host: %s", away)
                said = away.host
            self._pause(away)

    def _pause(self, why: HostError) -> None:
        self.waits.note(why)
        if self._stopped():
            raise StateError(f"the pipeline was stopped while it waited for a host: {why}")
        time.sleep(_LOOK_SECONDS)

    def _away(self) -> HostError | None:
        """Why a host cannot be asked for anything, if one cannot."""
        for host in range(self.hosts):
            try:
                self._coordinator.refuse_silent(host)
            except HostError as error:
                return error
        return None

    # -- what the agents do -----------------------------------------------------------------------

    def sync(self, traces: Sizes) -> None:
        fresh = self._by_host(traces, lambda trace, name: (trace, name) not in self._synced)
        self._each(lambda agent, batches: agent.sync(batches), fresh)
        self.are_synced(traces)

    def faults(self, traces: Sizes, *, deep: bool) -> Iterator[tuple[str | None, int]]:
        found = self._each(lambda agent, batches: agent.check(batches, deep=deep), self._by_host(traces))
        for faults in found:
            yield from ((fault, 0) for fault in faults)
        yield None, sum(size.bytes for batches in traces.values() for size in batches.values())

    def refuse_damaged(self, trace: str, name: str, size: Size) -> None:
        for fault in self._coordinator.agent(size.host).check({trace: {name: size.content}}, deep=True):
            raise DamagedError(fault)

    def remove(self, batches: Iterable[tuple[str, str]]) -> None:
        """In the background: what a host that is away does not delete now goes at the next start."""
        gone = list(batches)
        self._copies.remove(gone)
        if gone:
            self._gone.put(gone)

    def _remove(self) -> None:
        while (gone := self._gone.get()) is not None:
            self._all(partial(_remove_from, gone))

    def discard(self, transaction: int, run: str) -> None:
        self._copies.discard(transaction, run)
        self._all(lambda agent: agent.discard(transaction, run))

    def sweep(self, needed: Collection[tuple[str, str]]) -> None:
        self._copies.clear()  # they are fetched again when they are needed
        self._all(lambda agent: agent.sweep(needed))

    def has(self, run: str) -> bool:
        """A run is 32 bits by chance, and hosts are many: they are not asked."""
        return False

    def _by_host(
        self, traces: Sizes, wanted: Callable[[str, str], bool] = lambda _trace, _name: True
    ) -> dict[int, dict[str, dict[str, Content]]]:
        found: dict[int, dict[str, dict[str, Content]]] = {}
        for trace, batches in traces.items():
            for name, size in batches.items():
                if wanted(trace, name):
                    found.setdefault(size.host, {}).setdefault(trace, {})[name] = size.content
        return found

    def _each(
        self,
        ask: Callable[[Agent, dict[str, dict[str, Content]]], T],
        by_host: Mapping[int, dict[str, dict[str, Content]]],
    ) -> list[T]:
        """Ask each of these hosts at the same time, each for its own batches."""
        asked = [
            self._pool.submit(ask, self._coordinator.agent(host), batches)
            for host, batches in by_host.items()
        ]
        return [one.result() for one in asked]

    def _all(self, ask: Callable[[Agent], None]) -> None:
        """Have all hosts delete something, that can be reached: the rest goes when they start."""

        def tell(host: int) -> None:
            try:
                ask(self._coordinator.agent(host))
            except HostLostError as error:
                _log.warning("%s", error)
            except PenstockError as error:
                _log.warning("host %d: %s", host, error)

        list(self._pool.map(tell, range(self.hosts)))


def _other(before: Sequence[str], now: Sequence[str]) -> Collection[int]:
    return [host for host, (one, other) in enumerate(zip(before, now, strict=False)) if one != other]


def _remove_from(batches: Collection[tuple[str, str]], agent: Agent) -> None:
    agent.remove(batches)


def _place(size: Size) -> list[Any]:
    return [size.host, size.bytes, size.checksum, size.first, size.last]
