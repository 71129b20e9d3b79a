"""Which batches make up each trace, who is reading them, and which are garbage."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.trace import merge
from penstock.trace.task import batch_name

Batches = dict[str, dict[str, int]]  # trace -> batch -> rows


@dataclass(frozen=True)
class Size:
    """Of one batch."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Merge:
    """A merge to be done: these batches of a trace become one."""

    trace: str
    names: list[str]


@dataclass
class _Garbage:
    path: Path
    readers: set[int]


class State:
    """The batches of all traces. A reader's snapshot stays readable until it lets go of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._traces: dict[str, dict[str, Size]] = {}
        self._lock = threading.Lock()
        self._readers: set[int] = set()
        self._next_reader = 0
        self._garbage: list[_Garbage] = []

    def path(self, trace: str, name: str) -> Path:
        return self.directory / trace / f"{name}.arrow"

    def sizes(self) -> dict[str, dict[str, Size]]:
        """All batches, by trace and name."""
        with self._lock:
            return {trace: dict(batches) for trace, batches in self._traces.items()}

    def load(self, traces: Mapping[str, Mapping[str, Size]]) -> None:
        """Start from batches that are already there."""
        with self._lock:
            self._traces = {trace: dict(batches) for trace, batches in traces.items()}

    @contextmanager
    def reading(self) -> Iterator[Batches]:
        """A consistent snapshot: all batches with their rows, none of which is deleted meanwhile."""
        with self._lock:
            reader = self._next_reader
            self._next_reader += 1
            self._readers.add(reader)
            snapshot = {
                trace: {name: size.rows for name, size in batches.items()}
                for trace, batches in self._traces.items()
                if batches
            }
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

    def discard(self, transaction: int) -> None:
        """Delete what a transaction wrote that did not take effect."""
        for path in self.directory.glob(f"*/{batch_name(transaction, '*')}.arrow*"):
            path.unlink(missing_ok=True)

    def merges(self) -> list[Merge]:
        """What is worth merging now."""
        with self._lock:
            found = []
            for trace, batches in self._traces.items():
                if names := merge.choose({name: size.rows for name, size in batches.items()}):
                    found.append(Merge(trace, names))
            return found

    def replace(self, done: Merge, name: str, size: Size) -> None:
        """Put a merged batch in place of its parts, unless another merge was there first."""
        with self._lock:
            batches = self._traces[done.trace]
            if any(part not in batches for part in done.names):
                size = Size(0, 0)
            else:
                for part in done.names:
                    del batches[part]
                    self._garbage.append(_Garbage(self.path(done.trace, part), set(self._readers)))
            if size.rows:
                batches[name] = size
            else:
                self._garbage.append(_Garbage(self.path(done.trace, name), set()))
        self._collect()

    def drop(self) -> None:
        """Forget and delete everything."""
        with self._lock:
            self._traces = {}
            shutil.rmtree(self.directory, ignore_errors=True)

    def _collect(self) -> None:
        """Delete what no reader can see any more."""
        with self._lock:
            kept = []
            for item in self._garbage:
                item.readers &= self._readers
                if item.readers:
                    kept.append(item)
                else:
                    item.path.unlink(missing_ok=True)
            self._garbage = kept
