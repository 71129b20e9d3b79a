"""What happens to transactions, one after the other, in the one thread that may do it.

For a transaction, in this order: its input is in the journal; Spark evaluates it; its commit is in the
journal; outputs get its changes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from penstock.checkpoint.model import Saved
from penstock.connectors import inline_split
from penstock.controller.changes import Change, Changes, with_change_type
from penstock.controller.inputs import InputRunner
from penstock.controller.machine import Event, Machine
from penstock.controller.outputs import OutputRunner
from penstock.controller.recovery import Recorded, digests_of, inputs_of, positions_of
from penstock.controller.retry import pauses
from penstock.controller.statistics import Statistics
from penstock.controller.storage import Storage
from penstock.controller.work import Arrival
from penstock.engine.engine import Engine, Fed, Result
from penstock.engine.relations import CLOCK, clock_row
from penstock.errors import EvaluationError, PenstockError, StateError, UnreachableError
from penstock.journal.journal import Entry
from penstock.journal.record import Kind, Portion, Record
from penstock.trace.rows import Rows

_log = logging.getLogger("penstock")

JOURNAL_BYTES = 256 << 20
"""The journal of a pipeline grows to about this size between checkpoints."""


class Transactions:
    """The transaction under way, and what it takes to bring it to its end."""

    def __init__(
        self,
        engine: Engine,
        storage: Storage,
        saved: Saved,
        inputs: Sequence[InputRunner],
        outputs: Sequence[OutputRunner],
        stopping: threading.Event,
    ) -> None:
        self.engine = engine
        self.storage = storage
        self.inputs = inputs
        self.outputs = outputs
        self.stopping = stopping
        self.statistics = Statistics(saved.rows, saved.statistics)
        self.machine = Machine(saved.transaction, replaying=True)
        self.positions: dict[str, Any] = dict(saved.positions)
        """Where the connectors stood after the last transaction that ended."""
        self.paused: dict[str, bool] = dict(saved.paused)
        """Input connectors that somebody paused or resumed."""
        self.opened: Recorded | None = None
        self.error: PenstockError | None = None
        """Why the transaction under way does not get on."""
        self.broken: PenstockError | None = None
        """Why nothing more can be done: what is on disk and what is in memory may differ."""
        self.readers: dict[str, WeakSet[Changes]] = {}
        """By view."""
        self.dropped: set[int] = set()
        """Transactions that ended without effect in this run."""
        self.carried: dict[str, Rows] = {}
        """What outputs of a view get with the next transaction beside its change; see Carried."""

    def all_readers(self) -> list[Changes]:
        """The readers of every view."""
        return [reader for readers in list(self.readers.values()) for reader in list(readers)]

    def begin(self) -> None:
        """Open a transaction for a client."""
        after = self.machine.after(Event.BEGIN)
        self.append(Kind.BEGIN)
        self.opened = Recorded(self.machine.number)
        self.machine = after

    def step(self, arrivals: Sequence[Arrival]) -> None:
        """Make input durable as a part of the transaction: rows of neighbouring calls become one portion."""
        after = self.machine.after(Event.STEP)
        grouped: dict[tuple[str, str], list[Arrival]] = {}
        for arrival in arrivals:
            table = self.engine.table(arrival.table).name
            grouped.setdefault((arrival.connector, table), []).append(arrival)
        portions: list[Portion] = []
        data = b""
        for (connector, table), items in grouped.items():
            tables = [item.data for item in items if isinstance(item.data, pa.Table)]
            splits = [split for item in items if not isinstance(item.data, pa.Table) for split in item.data]
            if tables:
                rows, more = self.storage.journal.stage(pa.concat_tables(tables), len(portions), len(data))
                portions.append(Portion(connector, table, rows=rows))
                data += more
            if splits:
                portions.append(Portion(connector, table, tuple(splits), position=items[-1].position))
        entry = self.append(Kind.STEP, portions, data)
        self.machine = after
        if self.opened is None:
            self.opened = Recorded(self.machine.number)
        self.opened.steps.append(entry)

    def evaluate(self) -> None:
        """Evaluate the transaction under way, commit it and deliver it; or let it fail, and say why."""
        begin = time.monotonic()
        transaction = self.opened
        assert transaction is not None, "something was taken in"
        number = transaction.number
        self.machine = self.machine.after(Event.EVALUATE)
        self.error = None
        now = datetime.now(UTC)
        # Reading holds the batches of the change back from being merged away until they are delivered.
        with self.engine.state.reading():
            try:
                result = self.run(number, inputs_of(transaction), now)
            except EvaluationError as error:
                self.machine = self.machine.after(Event.FAIL)
                self.error = error
                _log.error("%s", error)
                return
            delivered = {o.name: o.delivered for o in self.outputs if not o.output.remembers}
            note: dict[str, Any] = {"changed": sorted({*result.changed, *self.carried})}
            if delivered:
                note["delivered"] = delivered
            self.append(Kind.COMMIT, at=now, digests=digests_of(result.digests, number), note=note)
            self.machine = self.machine.after(Event.COMMIT)
            self.positions.update(positions_of(transaction.steps))
            self.opened = None
            self.record(result, time.monotonic() - begin)
            self.deliver(result)
            self.machine = self.machine.after(Event.DELIVER)
        if self.storage.temporary and self.storage.journal.bytes > JOURNAL_BYTES:
            self.storage.journal.trim(self.storage.journal.rotate())

    def end(self, event: Event, kind: Kind, note: dict[str, Any]) -> None:
        """End the transaction without effect."""
        after = self.machine.after(event)
        self.append(kind, note=note)
        steps = self.opened.steps if self.opened is not None else []
        gone = positions_of(steps)
        if event is Event.SKIP:
            self.positions.update(gone)
        else:
            for runner in self.inputs:
                if runner.name in gone:
                    runner.rewind(self.positions[runner.name])
        self.opened = None
        self.error = None
        self.dropped.add(self.machine.number)
        self.machine = after
        for reader in self.all_readers():
            reader.advance(after.last)

    def pause_connector(self, name: str, paused: bool) -> None:
        """Pause an input connector or let it go on, over restarts too."""
        runner = next((runner for runner in self.inputs if runner.name == name), None)
        if runner is None:
            known = ", ".join(runner.name for runner in self.inputs) or "none"
            raise StateError(f"there is no input connector {name}; the input connectors are: {known}")
        self.append(Kind.CONNECTOR, note={"connector": name, "paused": paused})
        self.paused[name] = paused
        runner.pause(paused)

    def run(self, number: int, inputs: dict[str, list[Fed]], now: datetime) -> Result:
        """Evaluate as soon as every source that is read can be reached."""
        for pause in pauses():
            try:
                result = self._evaluated(number, inputs, now)
                self.error = None
                return result
            except UnreachableError as error:
                self.error = error
                _log.warning("transaction %d is tried again: %s", number, error)
                if self.stopping.wait(pause):
                    raise EvaluationError(f"transaction {number} was not evaluated: {error}") from error
        raise AssertionError("pauses have no end")

    def _evaluated(self, number: int, inputs: dict[str, list[Fed]], now: datetime) -> Result:
        if self.engine.uses_clock:
            inputs[CLOCK] = [Fed(inline_split(clock_row(now)))]
        return self.engine.run(number, inputs, now=now, initial=number == 0)

    def record(self, result: Result, seconds: float | None) -> None:
        """Count what a transaction did."""
        self.statistics.record(
            result.transaction, seconds, result.rows_in, result.errors, result.rows_out, result.growth
        )
        for runner in self.inputs:
            runner.rows += sum(n for o, (n, _) in result.digests.items() if o.connector == runner.name)
            for owner, bad in result.bad.items():
                if owner.connector == runner.name:
                    runner.bad += bad.count
                    runner.shown = [vars(record) for record in bad.shown]

    def deliver(self, result: Result) -> None:
        """Give a transaction's changes to those who do not have them."""
        number = result.transaction
        for view in sorted({*result.changed, *self.carried}):
            paths = result.changed.get(view, [])
            readers = list(self.readers.get(view, ())) if paths else []
            outputs = [o for o in self.outputs if o.view == view and o.delivered < number and not o.joins]
            if not readers and not outputs:
                continue
            data = more = with_change_type(self.engine.change(view, paths))
            if view in self.carried:
                more = with_change_type(self.engine.change(view, paths, self.carried[view]))
            for output in outputs:
                output.put(number, more if output.carries else data)
            for reader in readers:
                reader.deliver(Change(number, data))
        for reader in self.all_readers():
            reader.advance(number)
        self.carried = {}
        self.machine = self.machine.output(number)

    def pass_over(self, number: int) -> None:
        """Nobody lacks the changes up to a transaction."""
        self.carried = {}
        self.machine = self.machine.output(number)

    def append(
        self,
        kind: Kind,
        portions: Sequence[Portion] = (),
        data: bytes = b"",
        at: datetime | None = None,
        **more: Any,
    ) -> Entry:
        record = Record(kind, self.machine.number, at or datetime.now(UTC), tuple(portions), **more)
        return self.storage.journal.append(record, data)
