"""Which batches make up each trace, who is reading them, and which are garbage."""

from __future__ import annotations

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
    trace: str
    name: str
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
        self._saved: set[tuple[str, str]] = set()

    def path(self, trace: str, name: str) -> Path:
        return self.directory / trace / f"{name}.arrow"

    def sizes(self) -> dict[str, dict[str, Size]]:
        """All batches, by trace and name."""
        with self._lock:
            return {trace: dict(batches) for trace, batches in self._traces.items()}

    def load(self, traces: Mapping[str, Mapping[str, Size]]) -> None:
        """Start from a saved state; what else lies there came after it and will come again."""
        with self._lock:
            self._traces = {trace: dict(batches) for trace, batches in traces.items()}
            for path in self.directory.glob("*/*.arrow*"):
                if path.suffix != ".arrow" or path.stem not in self._traces.get(path.parent.name, {}):
                    path.unlink(missing_ok=True)
        self.keep(traces)

    def keep(self, *saved: Mapping[str, Mapping[str, Size]]) -> None:
        """Delete no batch of these states, merged or not; of no other saved state is any needed."""
        with self._lock:
            self._saved = {
                (trace, name) for traces in saved for trace, batches in traces.items() for name in batches
            }
        self._collect()

    def keep_more(self, saved: Mapping[str, Mapping[str, Size]]) -> dict[str, dict[str, Size]]:
        """All batches, of which from now on none is deleted, nor any of that saved state."""
        with self._lock:
            found = {trace: dict(batches) for trace, batches in self._traces.items()}
            self._saved = {
                (trace, name) for traces in (saved, found) for trace in traces for name in traces[trace]
            }
            return found

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
                    self._garbage.append(_Garbage(done.trace, part, set(self._readers)))
            if size.rows:
                batches[name] = size
            else:
                self._garbage.append(_Garbage(done.trace, name, set()))
        self._collect()

    def _collect(self) -> None:
        """Delete what no reader can see any more."""
        with self._lock:
            kept = []
            for item in self._garbage:
                item.readers &= self._readers
                if item.readers or (item.trace, item.name) in self._saved:
                    kept.append(item)
                else:
                    self.path(item.trace, item.name).unlink(missing_ok=True)
            self._garbage = kept
