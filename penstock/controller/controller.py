"""One thread runs transactions, another merges batches and compiles, a third feeds connectors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from penstock.connectors import Feeder, Input, Output, Split
from penstock.controller.changes import Change, Changes, with_change_type
from penstock.controller.recovery import clock_row
from penstock.controller.statistics import Statistics
from penstock.controller.storage import Saved, Storage
from penstock.controller.work import Work, WorkQueue
from penstock.engine.engine import Engine, Result
from penstock.engine.relations import CLOCK, TableRelation, ViewRelation
from penstock.errors import PenstockError, StateError
from penstock.journal.journal import Recorded

_log = logging.getLogger("penstock")

# Recovery runs at most about this many transactions again, or this many bytes of input.
_SAVE_EVERY = 500
_SAVE_BYTES = 256 << 20


@dataclass(frozen=True)
class Limits:
    """How much becomes one transaction, and how much may wait."""

    max_transaction_rows: int = 1_000_000
    max_queued_rows: int = 2_000_000


class Controller:
    """Drives an engine: takes input, runs transactions, delivers changes."""

    def __init__(
        self,
        engine: Engine,
        storage: Storage,
        saved: Saved,
        transaction: int,
        rows: Mapping[str, int],
        inputs: dict[str, list[Input]],
        outputs: dict[str, list[Output]],
        limits: Limits,
    ) -> None:
        self.engine = engine
        self.statistics = Statistics(rows)
        self.transaction = transaction
        self._storage = storage
        self._saved = saved
        self._outputs = outputs
        self._readers: dict[str, WeakSet[Changes]] = {}
        self._between = threading.Lock()  # held while a transaction takes effect and is delivered
        self._queue = WorkQueue(limits.max_transaction_rows, limits.max_queued_rows)
        self._unflushed: list[Work] = []
        self._unflushed_lock = threading.Lock()
        self._untidy = threading.Event()
        self._stopping = threading.Event()
        self.failure: PenstockError | None = None
        self.failed = False
        self._feeder = Feeder(inputs, self._feed) if inputs else None
        self._threads = [self._thread(self._run, "transactions"), self._thread(self._tidy, "tidying")]
        if self._feeder is not None:
            self._threads.append(self._thread(self._run_feeder, "inputs"))

    @staticmethod
    def _thread(target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=f"penstock {name}", daemon=True)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    # -- input ----------------------------------------------------------------------------------

    def submit(self, inputs: Sequence[tuple[str, pa.Table]], *, explicit: bool) -> None:
        """Accept rows; they are in the views after `flush`."""
        work = Work(list(inputs), explicit)
        if not self._queue.put(work, wait=True):
            raise StateError("the pipeline is stopped; start it again to send rows")
        with self._unflushed_lock:
            self._unflushed = [w for w in self._unflushed if not w.done.is_set() or w.error]
            self._unflushed.append(work)

    def _feed(self, table: str, splits: list[Split]) -> None:
        self._queue.put(Work([(table, split) for split in splits], explicit=False), wait=True)

    def flush(self) -> None:
        """Wait until everything accepted so far is in the views; raise what kept a part of it out."""
        with self._unflushed_lock:
            waiting = list(self._unflushed)
        for work in waiting:
            work.done.wait()
        with self._unflushed_lock:
            self._unflushed = [work for work in self._unflushed if work not in waiting]
        for work in waiting:
            if work.error is not None:
                raise work.error
        self._raise_failure()

    @property
    def inputs_ended(self) -> bool:
        return self._feeder is None or self._feeder.ended

    def wait(self, timeout: float | None) -> bool:
        """Wait until every input ended and all of it is processed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._raise_failure()
            if self.inputs_ended and self._idle():
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    def _idle(self) -> bool:
        return not self._queue.pending() and not self._busy

    def _raise_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    # -- transactions ---------------------------------------------------------------------------

    _busy = False

    def _run(self) -> None:
        while True:
            works = self._queue.take()
            if not works:
                return
            self._busy = True
            error: PenstockError | None = None
            try:
                self._transact(works)
            except PenstockError as caught:
                error = caught
                _log.error("%s", caught)
            except Exception as caught:
                error = StateError(f"the pipeline cannot go on: {caught}. Stop it and start it again.")
                error.__cause__ = caught
                _log.exception("a transaction failed")
            for work in works:
                work.error = error
                work.done.set()
            self._busy = False
            self._untidy.set()
            if error is not None and any(isinstance(i, Split) for w in works for _, i in w.inputs):
                # What a connector read would be lost if later input took effect without it.
                self.failed = True
                self.failure = error
                self._queue.close(drop=True)

    def _transact(self, works: Sequence[Work]) -> None:
        begin = time.monotonic()
        number = self.transaction + 1
        now = datetime.now(UTC)
        journal = self._storage.journal
        # Reading holds the batches of the change back from being merged away until they are delivered.
        with self._between, self.engine.state.reading():
            try:
                inputs = self._stage(number, works, now)
                journal.record(Recorded(number, now, inputs))
                result = self.engine.run(number, inputs, now=now)
            except BaseException:
                journal.drop(number)
                raise
            if self._storage.temporary:
                journal.drop(number)
            self.transaction = number
            seconds = time.monotonic() - begin
            self.statistics.record(
                number, seconds, result.rows_in, result.errors, result.rows_out, result.growth
            )
            self._deliver(result)

    def _stage(self, number: int, works: Sequence[Work], now: datetime) -> dict[str, list[Split]]:
        """Rows become splits: those of neighbouring calls for one table become one file."""
        arrived: dict[str, list[pa.Table | Split]] = {}
        for work in works:
            for table, item in work.inputs:
                arrived.setdefault(self.engine.table(table).name, []).append(item)
        staged: dict[str, list[Split]] = {}
        for table, items in arrived.items():
            tables = [item for item in items if isinstance(item, pa.Table)]
            splits = [item for item in items if isinstance(item, Split)]
            if tables:
                file = self.engine.table(table).trace
                splits += self._storage.journal.stage(number, file, pa.concat_tables(tables))
            staged[table] = splits
        if self.engine.uses_clock:
            staged[CLOCK] = self._storage.journal.stage(number, CLOCK, clock_row(now))
        return staged

    # -- readers --------------------------------------------------------------------------------

    def _deliver(self, result: Result) -> None:
        for view, paths in result.changed.items():
            readers = list(self._readers.get(view, ()))
            outputs = self._outputs.get(view, [])
            if readers or outputs:
                data = with_change_type(self.engine.change(view, paths))
                for output in outputs:
                    output.write(result.transaction, data)
                for reader in readers:
                    reader.deliver(Change(result.transaction, data))

    def subscribe(self, view: str, *, follow: bool) -> Changes:
        """A reader that begins with the view's rows as they are now."""
        reader = Changes(view, follow=follow)
        with self._between:  # so that no change is missed or seen twice
            transaction = self.transaction
            rows = self.engine.rows(view)
            if rows.num_rows:
                reader.deliver(Change(transaction, with_change_type(rows)))
            self._readers.setdefault(self.engine.relation(view).name, WeakSet()).add(reader)
        return reader

    # -- background -----------------------------------------------------------------------------

    def _tidy(self) -> None:
        while not self._stopping.is_set():
            self._untidy.wait()
            self._untidy.clear()
            try:
                while not self._stopping.is_set() and self.engine.tidy():
                    pass
                if self._should_save():
                    self.save()
            except Exception:
                if not self._stopping.is_set():
                    _log.exception("tidying up failed; it will be tried again")

    def _should_save(self) -> bool:
        since = self.transaction - self._saved.transaction
        return since >= _SAVE_EVERY or (since > 0 and self._storage.journal.staged_bytes >= _SAVE_BYTES)

    def save(self) -> None:
        """Save the state as it is between two transactions, and let go of the journal up to there."""
        if self._storage.temporary:
            return
        state = self.engine.state
        with self._between:
            saved = replace(
                self._saved,
                transaction=self.transaction,
                rows=dict(self.statistics.rows),
                circuit=sorted(self.engine.circuit.traces),
                traces=state.sizes(),
            )
            state.keep(self._saved.traces, saved.traces)
        self._storage.save(saved)
        state.keep(saved.traces)
        self._storage.journal.trim(saved.transaction)
        self._saved = saved

    def _run_feeder(self) -> None:
        assert self._feeder is not None
        try:
            self._feeder.run()
        except PenstockError as error:
            self.failure = error
            _log.error("%s", error)

    # -- end ------------------------------------------------------------------------------------

    def stop(self, *, drop: bool) -> None:
        """Finish what is queued (or drop it) and end all threads."""
        if self._feeder is not None:
            self._feeder.stop()
        self._queue.close(drop=drop)
        self._stopping.set()
        self._untidy.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for readers in self._readers.values():
            for reader in readers:
                reader.close()
        for outputs in self._outputs.values():
            for output in outputs:
                output.close()
        if self._feeder is not None:
            self._feeder.close()

    def stats(self, state: str) -> dict[str, Any]:
        """What `Pipeline.stats` returns."""
        sizes = self.engine.state.sizes()
        traces = {
            trace: {
                "holds": info.describes,
                "batches": len(sizes.get(trace, {})),
                "rows": sum(size.rows for size in sizes.get(trace, {}).values()),
                "bytes": sum(size.bytes for size in sizes.get(trace, {}).values()),
            }
            for trace, info in list(self.engine.circuit.traces.items())
        }
        relations = [r for r in self.engine.relations.values() if r.name != CLOCK]
        tables = [r for r in relations if isinstance(r, TableRelation)]
        views = [r for r in relations if isinstance(r, ViewRelation)]
        return {
            "state": state,
            "transactions": self.transaction,
            "latency_ms": self.statistics.latencies(),
            "tables": {t.name: self.statistics.table(t.name) for t in tables},
            "views": {v.name: self.statistics.view(v.name) for v in views},
            "traces": traces,
        }
