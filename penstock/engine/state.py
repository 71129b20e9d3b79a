"""Which batches make up each trace, who is reading them, and which are garbage."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.trace import merge
from penstock.trace.files import BatchFiles, Size

Batches = dict[str, dict[str, Size]]  # trace -> batch


@dataclass(frozen=True)
class Merge:
    """A merge to be done: these batches of a trace become one, on the host that has them."""

    trace: str
    names: list[str]
    host: int = 0


@dataclass
class _Garbage:
    trace: str
    name: str
    readers: set[int]


class State:
    """The batches of all traces. A reader's snapshot stays readable until it lets go of it."""

    def __init__(self, files: BatchFiles, program: str = "") -> None:
        """`program`: a mark of what computes it."""
        self.files = files
        self.program = program
        self._traces: dict[str, dict[str, Size]] = {}
        self._lock = threading.Lock()
        self._readers: set[int] = set()
        self._next_reader = 0
        self._garbage: list[_Garbage] = []
        self._saved: set[tuple[str, str]] = set()
        self._had: set[tuple[str, str]] = set()
        """What this run has, or has merged and a checkpoint has still."""
        self._unverified: dict[tuple[str, str], Size] = {}
        self.run = secrets.token_hex(4)
        """Part of the names of the batches that this run of the pipeline writes."""

    def sizes(self) -> dict[str, dict[str, Size]]:
        """All batches, by trace and name."""
        with self._lock:
            return {trace: dict(batches) for trace, batches in self._traces.items()}

    def load(self, traces: Mapping[str, Mapping[str, Size]], *, verified: bool) -> None:
        """Start from a saved state, which stays as it is; `verified`: every byte of it was looked at."""
        with self._lock:
            self._traces = {trace: dict(batches) for trace, batches in traces.items()}
            saved = {
                (trace, name): size for trace, batches in traces.items() for name, size in batches.items()
            }
            self._saved = set(saved)
            self._had = set(saved)
            self._unverified = {} if verified else saved
            while self.files.has(self.run):
                self.run = secrets.token_hex(4)

    def unverified(self) -> dict[str, dict[str, tuple[int, str]]]:
        """What the batches must contain that nobody has looked at since they were restored, or since their
        host was started again before they were synced."""
        self.doubt(self.files.returned())
        with self._lock:
            found: dict[str, dict[str, tuple[int, str]]] = {}
            for (trace, name), size in self._unverified.items():
                found.setdefault(trace, {})[name] = size.bytes, size.checksum
            return found

    def doubt(self, hosts: Collection[int]) -> None:
        """These were started again: what is not synced there has to be looked at."""
        if not hosts:
            return
        with self._lock:
            for trace, batches in self._traces.items():
                for name, size in batches.items():
                    if size.host in hosts and not self.files.is_synced(trace, name):
                        self._unverified[trace, name] = size

    def refuse_damaged(self, traces: Mapping[str, Mapping[str, Size]]) -> None:
        """`DamagedError` if one of these batches that this run has, or has merged, is damaged now."""
        for trace, batches in traces.items():
            for name, size in batches.items():
                if (trace, name) in self._had:
                    self.files.refuse_damaged(trace, name, size)

    def verify_rest(self) -> None:
        """Look at what nobody has looked at since it was restored; `DamagedError` if it is damaged."""
        with self._lock:
            rest = dict(self._unverified)
        for (trace, name), size in rest.items():
            with self.reading() as batches:
                if name in batches.get(trace, {}):
                    self.files.refuse_damaged(trace, name, size)
            self.verified([(trace, name)])

    def verified(self, batches: Iterable[tuple[str, str]]) -> None:
        """These batches contain what they must."""
        with self._lock:
            for batch in batches:
                self._unverified.pop(batch, None)

    def keep(self, saved: set[tuple[str, str]], gone: Iterable[tuple[str, str]] = ()) -> None:
        """Delete none of these batches, merged or not. What is `gone` is part of no checkpoint any more: it
        is deleted unless the pipeline itself has it."""
        with self._lock:
            self._saved = saved
            self._had = {b for b in self._had if b in saved or b[1] in self._traces.get(b[0], {})}
            for trace, name in gone:
                if name not in self._traces.get(trace, {}):
                    self._garbage.append(_Garbage(trace, name, set(self._readers)))
        self._collect()

    def keep_more(self) -> dict[str, dict[str, Size]]:
        """All batches, of which from now on none is deleted, nor any that was kept before."""
        with self._lock:
            self._saved = self._saved | {
                (trace, name) for trace in self._traces for name in self._traces[trace]
            }
            return {trace: dict(batches) for trace, batches in self._traces.items()}

    @contextmanager
    def reading(self) -> Iterator[Batches]:
        """A consistent snapshot: all batches, none of which is deleted meanwhile."""
        with self._lock:
            reader = self._next_reader
            self._next_reader += 1
            self._readers.add(reader)
            snapshot = {trace: dict(batches) for trace, batches in self._traces.items() if batches}
        try:
            yield snapshot
        finally:
            with self._lock:
                self._readers.discard(reader)
            self._collect()

    def add(self, batches: Mapping[tuple[str, str], Size]) -> None:
        """Make the batches of a transaction part of their traces, all at once."""
        with self._lock:
            for (trace, name), size in batches.items():
                self._traces.setdefault(trace, {})[name] = size
            self._had |= set(batches)

    def discard(self, transaction: int) -> None:
        """Delete what a transaction wrote that did not take effect."""
        self.files.discard(transaction, self.run)

    def merges(self) -> list[Merge]:
        """What is worth merging now."""
        with self._lock:
            found = []
            for trace, batches in self._traces.items():
                for host in {size.host for size in batches.values()}:
                    rows = {name: size.rows for name, size in batches.items() if size.host == host}
                    if names := merge.choose(rows):
                        found.append(Merge(trace, names, host))
            return found

    def replace(self, done: Merge, name: str, size: Size) -> None:
        """Put a merged batch in place of its parts, unless another merge was there first."""
        with self._lock:
            batches = self._traces[done.trace]
            if any(part not in batches for part in done.names):
                size = Size(0, 0, "")
            else:
                for part in done.names:
                    del batches[part]
                    self._garbage.append(_Garbage(done.trace, part, set(self._readers)))
            if size.rows:
                batches[name] = size
                self._had.add((done.trace, name))
            else:
                self._garbage.append(_Garbage(done.trace, name, set()))
        self._collect()

    def _collect(self) -> None:
        """Delete what no reader can see any more."""
        with self._lock:
            kept, gone = [], []
            for item in self._garbage:
                item.readers &= self._readers
                if item.readers or (item.trace, item.name) in self._saved:
                    kept.append(item)
                else:
                    gone.append((item.trace, item.name))
            self._garbage = kept
            self.files.remove(gone)
            for batch in gone:
                self._had.discard(batch)
                self._unverified.pop(batch, None)
