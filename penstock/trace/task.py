"""What a stage of the circuit sees of its transaction, inside a Spark task.

A stage is compiled once and run in every transaction, so what varies cannot be part of it: it
travels as one Spark local property, written by the driver as JSON, and the batches that a stage
writes go back as an accumulator. A retried task writes the same bytes under the same name and
reports them again under the same key, so a retry changes nothing.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.errors import DamagedError
from penstock.storage.files import Content
from penstock.trace.batch import Batch, lookup, write_batch
from penstock.trace.files import batch_name, refuse_damaged
from penstock.trace.host import Hosts
from penstock.trace.merge import choose_smallest, merge
from penstock.trace.rows import Keys, Layout, Rows, Span, concat

PROPERTY = "penstock.transaction"
Report = dict[tuple[str, ...], Any]


class ReportParam(AccumulatorParam[Report]):
    """Reports add up by key; the same key twice is the same fact twice."""

    def zero(self, value: Report) -> Report:
        return {}

    def addInPlace(self, value1: Report, value2: Report) -> Report:  # noqa: N802 (PySpark's name)
        value1.update(value2)
        return value1


class Task:
    """One transaction as one task sees it: which batches are there, and where new ones go."""

    def __init__(self, facts: dict[str, Any], report: Accumulator[Report] | None) -> None:
        self.transaction: int = facts["transaction"]
        self.initial: bool = facts["initial"]
        self.inputs: dict[str, list[dict[str, Any]]] = facts["inputs"]
        self.owners: dict[str, list[int]] = facts["owners"]  # of each split of a table
        self.owner_names: list[tuple[str, int]] = facts["owner_names"]  # connector and transaction
        self.now: str = facts["now"]
        self._run: str = facts["run"]
        self._unverified: dict[str, dict[str, list[Any]]] = facts["unverified"]
        self._hosts = None if facts["hosts"] is None else Hosts.of(facts["hosts"], self.transaction)
        self._directory = Path(facts["directory"])
        self.dead_letters = Path(facts["dead_letters"])
        if self._hosts is not None:  # each host has its own
            self._directory = self._hosts.here.batches
            self.dead_letters = self._hosts.here.directory / self.dead_letters.name
        self._old: dict[str, dict[str, int]] = facts["traces"]
        self._sources: dict[str, dict[str, int]] = facts["sources"]
        self._kept: list[str] = facts["kept"]
        self._new: dict[str, list[str]] = facts["written"]
        self._report = report

    @property
    def host(self) -> int:
        """On which host this is, from 0."""
        return 0 if self._hosts is None else self._hosts.here.index

    @classmethod
    def current(cls, report: Accumulator[Report] | None) -> Task:
        context = TaskContext.get()
        facts = context.getLocalProperty(PROPERTY) if context is not None else None
        if facts is None:
            raise RuntimeError(f"a stage runs only in a Spark task with the local property {PROPERTY}")
        return cls(_facts(facts), report)

    def lookup(self, trace: str, layout: Layout, keys: Keys) -> Rows:
        """What a trace held before this transaction of the given sorted, distinct keys."""
        if len(keys) == 0:
            return Rows.empty(layout)
        return lookup(layout, self.old(trace, layout, Span.of(keys)), keys)

    def old(self, trace: str, layout: Layout, keys: Span | None = None) -> list[Batch]:
        """The batches of a trace before this transaction, at least those that have one of these keys."""
        directory = self._directory / trace
        before = _opened.get(str(directory), {})
        now = {}
        found = []
        for name in self._old.get(trace, ()):
            held = before.get(name)
            if not self._may_have(trace, name, keys):
                if held is not None:
                    now[name] = held
                continue
            path = self._path(trace, name)
            identity = self._identity(trace, name, path)
            if held is None or held[0] != identity:
                held = identity, self._batch(trace, name, layout, path)
            now[name] = held
            found.append(held[1])
        _opened[str(directory)] = now
        return found

    def _may_have(self, trace: str, name: str, keys: Span | None) -> bool:
        return self._hosts is None or keys is None or self._hosts.may_have(trace, name, keys)

    def _path(self, trace: str, name: str) -> Path:
        """Where a batch can be read."""
        if self._hosts is None:
            return self._directory / trace / f"{name}.arrow"
        path, how = self._hosts.at_hand(trace, name)
        self.tell(("read", trace, name, str(self._hosts.here.index), how), True)
        return path

    def _identity(self, trace: str, name: str, path: Path) -> tuple[Any, ...]:
        """Changes when a file does, which may have been put in the place of another, and when what was held
        by an earlier run of the pipeline has to be checked again."""
        try:
            file = path.stat()
        except FileNotFoundError:
            return ()
        return file.st_ino, file.st_mtime_ns, self._run if name in self._unverified.get(trace, {}) else None

    def _batch(self, trace: str, name: str, layout: Layout, path: Path) -> Batch:
        """A batch; one that nobody has looked at since it was restored is checked first."""
        unverified = self._unverified.get(trace, {}).get(name)
        if unverified is None:
            return Batch(str(path), layout)
        batch = Batch(str(path), layout, Content(*unverified))
        if self._hosts is None or self._hosts.is_own(trace, name):  # a copy says nothing of the file
            self.tell(("verified", trace, name), True)
        return batch

    def new(self, trace: str, layout: Layout, keys: Span) -> list[Batch]:
        """The batches that an earlier job of this transaction added to a trace, as `old` has those before."""
        names = [name for name in self._new.get(trace, []) if self._may_have(trace, name, keys)]
        return [Batch(str(self._path(trace, name)), layout) for name in names]

    def source(self, trace: str, layout: Layout, keys: Span) -> list[Batch]:
        """The batches of a relation from which views are filled: to those views they are all new."""
        names = [name for name in self._sources.get(trace, ()) if self._may_have(trace, name, keys)]
        return [self._batch(trace, name, layout, self._path(trace, name)) for name in names]

    def append(self, trace: str, rows: Rows, bits: int) -> None:
        """Add this transaction's consolidated rows to a trace; `bits` of the key name the partition.

        A trace that a filled view shares with views that are kept has these rows already.
        """
        if len(rows) == 0 or trace in self._kept:
            return
        part = (int(rows.k[0]) >> (64 - bits)) + (1 << (bits - 1)) if bits else 0
        name = batch_name(self.transaction, self._run, f"{part:04d}")
        written = write_batch(self._directory / trace / f"{name}.arrow", rows.layout, [rows])
        self.tell(("batch", trace, name), self._placed(written, Span.of(rows.k)))
        if bits == 0 and (parts := choose_smallest(self._old.get(trace, {}))):
            self._merge(trace, parts, rows.layout)

    def _merge(self, trace: str, parts: list[str], layout: Layout) -> None:
        name = batch_name(self.transaction, self._run, "m")
        self.tell(("merge", trace, name), (self.merged(trace, parts, name, layout), parts))

    def layout(self, trace: str, name: str) -> Layout:
        """How the batches of a trace are laid out, as one of them says."""
        path = self._path(trace, name)
        if (unverified := self._unverified.get(trace, {}).get(name)) is not None:
            refuse_damaged(path, Content(*unverified))
        try:
            return Layout.of_file(str(path))
        except (OSError, pa.ArrowException) as error:
            raise DamagedError(f"{path} cannot be read: {error}") from error

    def merged(self, trace: str, parts: list[str], name: str, layout: Layout) -> tuple[Any, ...]:
        """Write one batch with the contents of several; returns its size, as a `Size` has it."""
        opened = [self._batch(trace, part, layout, self._path(trace, part)) for part in parts]
        spans = [span for batch in opened if (span := batch.span) is not None]
        whole = Span(min(span.first for span in spans), max(span.last for span in spans)) if spans else None
        return self._placed(merge(layout, opened, self._directory / trace / f"{name}.arrow"), whole)

    def _placed(self, written: tuple[int, int, str], keys: Span | None) -> tuple[Any, ...]:
        """What was written and, on several hosts, where, and the keys in it."""
        if self._hosts is None:
            return written
        return *written, self._hosts.here.index, keys and keys.first, keys and keys.last

    def tell(self, key: tuple[str, ...], fact: Any) -> None:
        """Report a fact to the driver."""
        if self._report is not None:
            self._report.add({key: fact})


@dataclass(frozen=True)
class Stage(ABC):
    """The Python half of a rule: Arrow batches in, Arrow batches out, state beside."""

    @abstractmethod
    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Consume one partition of the change and emit what follows from it."""

    def function(
        self, report: Accumulator[Report] | None, width: int | None = None
    ) -> partial[Iterator[pa.RecordBatch]]:
        """What Spark ships to its workers: this stage by value, the code by reference. It sees the first
        `width` columns."""
        return partial(run_stage, self, report, width)


def run_stage(
    stage: Stage, report: Accumulator[Report] | None, width: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function that runs in the task."""
    if width is not None:
        batches = (batch.select(range(width)) for batch in batches)
    yield from stage.run(Task.current(report), batches)
    for _ in batches:  # a worker that leaves input unread is not used again, and a new one costs seconds
        pass


def gather(layout: Layout, batches: Iterator[pa.RecordBatch], start: int = 0) -> Rows:
    """All rows of a partition, consolidated."""
    return concat(layout, [Rows.from_batch(layout, batch, start) for batch in batches]).consolidated()


OUTPUT_ROWS = 1 << 16


def sliced(schema: pa.Schema, arrays: list[pa.Array]) -> Iterator[pa.RecordBatch]:
    """Columns as record batches of a size that Spark likes."""
    rows = len(arrays[0])
    for start in range(0, rows, OUTPUT_ROWS):
        yield pa.RecordBatch.from_arrays([array.slice(start, OUTPUT_ROWS) for array in arrays], schema=schema)


@lru_cache(maxsize=8)
def _facts(text: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(text)
    return facts


_opened: dict[str, dict[str, tuple[tuple[Any, ...], Batch]]] = {}
"""Batches stay mapped in the worker from task to task; those that were merged away are let go."""
