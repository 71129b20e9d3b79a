"""What happens to transactions, one after the other, in the one thread that may do it.

For a transaction, in this order: its input is in the journal; Spark evaluates it; its commit is in the
journal; outputs get its changes.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any, TypeVar
from weakref import WeakSet

import pyarrow as pa

from penstock.checkpoint.model import Saved
from penstock.connectors import Input, inline_split
from penstock.controller.changes import Change, Changes, with_change_type
from penstock.controller.inputs import InputRunner
from penstock.controller.machine import Event, Machine, State
from penstock.controller.outputs import OutputRunner, is_long
from penstock.controller.recovery import Recorded, digests_of, inputs_of, positions_of
from penstock.controller.retry import pauses
from penstock.controller.statistics import Statistics
from penstock.controller.storage import Storage
from penstock.controller.work import drop
from penstock.engine.engine import Engine, Fed, Owner, Result
from penstock.engine.relations import CLOCK, clock_row, is_stored
from penstock.errors import (
    EvaluationError,
    HostError,
    PenstockError,
    ShardError,
    StateError,
    UnreachableError,
)
from penstock.journal.arrival import Arrival, gathered
from penstock.journal.journal import Entry
from penstock.journal.record import Kind, Portion, Record
from penstock.replica.computed import Computed
from penstock.replica.decision import Decision
from penstock.replica.group import HYDRATION, Group
from penstock.replica.verdicts import Verdict
from penstock.trace.rows import Rows

_log = logging.getLogger("penstock")

T = TypeVar("T")

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
        group: Group | None = None,
    ) -> None:
        self.engine = engine
        self.storage = storage
        self.inputs = inputs
        self.outputs = outputs
        self.stopping = stopping
        self.first = saved.first
        self.group = group
        """The other replicas, if there may be any: what a transaction is made of is agreed on with them."""
        self.statistics = Statistics(saved.rows, saved.statistics, engine.files.hosts)
        self.machine = Machine(saved.transaction, replaying=True, first=saved.first)
        self.positions: dict[str, Any] = dict(saved.positions)
        """Where the connectors stood after the last transaction that ended."""
        self.paused: dict[str, bool] = dict(saved.paused)
        """Input connectors that somebody paused or resumed."""
        self.opened: Recorded | None = None
        self._error: PenstockError | None = None
        self._error_since = 0.0
        self._announces = False
        self.broken: PenstockError | None = None
        """Why nothing more can be done: what is on disk and what is in memory may differ."""
        self.readers: dict[str, WeakSet[Changes]] = {}
        """By view."""
        self.dropped: set[int] = set()
        """Transactions that ended without effect in this run."""
        self.carried: dict[str, Rows] = {}
        """What outputs of a view get with the next transaction beside its change; see Carried."""

    @property
    def error(self) -> PenstockError | None:
        """Why the transaction under way does not get on."""
        return self._error

    @error.setter
    def error(self, error: PenstockError | None) -> None:
        if self._error is None:
            self._error_since = time.monotonic()
        self._error = error

    @property
    def stalled(self) -> str | None:
        """What a transaction has waited for, for so long that the outputs are stale."""
        error = self._error
        return None if error is None or not is_long(self._error_since) else str(error)

    def under_way(self) -> dict[str, Any] | None:
        """How far the transaction has come, if there is one."""
        machine, opened = self.machine, self.opened
        if opened is None:
            return None
        done, tasks = self.engine.tasks() if machine.state is State.EVALUATING else (0, 0)
        return {
            "number": opened.number,
            "client": machine.client,
            "state": str(machine.state),
            "steps": len(opened.steps),
            "rows": opened.rows,
            "tasks": tasks,
            "tasks_done": done,
        }

    def all_readers(self) -> list[Changes]:
        """The readers of every view."""
        return [reader for readers in list(self.readers.values()) for reader in list(readers)]

    def begin(self) -> None:
        """Open a transaction for a client."""
        after = self.machine.after(Event.BEGIN)
        self.append(Kind.BEGIN)
        self.opened = Recorded(self.machine.number)
        self.machine = after

    def step(self, arrivals: Sequence[Arrival]) -> Decision | None:
        """Make input durable as a part of the transaction: rows of neighbouring calls become one portion.

        A replica takes in what its group decided on, which may be something else: it is returned.
        """
        named = [replace(arrival, table=self.engine.table(arrival.table).name) for arrival in arrivals]
        decision = self._decided(named)
        self._announces = decision is not None and decision.announces
        if decision is not None and not decision.mine:
            self._hold(decision.arrivals)
        if decision is None:
            self._take_in(gathered(named), None)
        else:
            self._take_in(decision.arrivals, decision.at)
        return decision

    def _hold(self, arrivals: Sequence[Arrival]) -> None:
        """Have sources keep for this replica what another one decided on, before it is in the journal."""
        for runner in self.inputs:
            given = [arrival.data for arrival in arrivals if arrival.connector == runner.name]
            splits = [split for data in given if not isinstance(data, pa.Table) for split in data]
            self._patiently(partial(runner.input.hold, splits))

    def computed(self, saved: Saved) -> Computed:
        """What this program computes, for other generations of replicas."""
        inputs = {runner.name: runner.table for runner in self.inputs}
        outputs = {output.name: output.view for output in self.outputs if output.output.remembers}
        connectors = sorted([*inputs.items(), *outputs.items()])
        return Computed(
            hashlib.sha256(f"{saved.meaning} {connectors}".encode()).hexdigest()[:16],
            {name: identity.fingerprint for name, identity in saved.relations.items()},
            inputs,
            outputs,
            sorted(relation.name for relation in self.engine.relations.values() if is_stored(relation)),
        )

    def hydrate(self) -> None:
        """Begin a replica that is new to its group: its first transaction is all that the tables had."""
        assert self.group is not None, "replicas have a group"
        tables = {r.name: r.errors_of for r in self.engine.relations.values() if is_stored(r)}
        self._take_in(*self.group.hydration(tables, self.machine.number))

    def _take_in(self, arrivals: Sequence[Arrival], at: datetime | None) -> None:
        after = self.machine.after(Event.STEP)
        portions: list[Portion] = []
        data = b""
        for given in arrivals:
            if isinstance(given.data, pa.Table):
                rows, more = self.storage.journal.stage(given.data, len(portions), len(data))
                portions.append(Portion(given.connector, given.table, rows=rows))
                data += more
            else:
                portions.append(
                    Portion(given.connector, given.table, tuple(given.data), position=given.position)
                )
        entry = self.append(Kind.STEP, portions, data, at)
        self.machine = after
        if self.opened is None:
            self.opened = Recorded(self.machine.number)
        self.opened.steps.append(entry)

    def _decided(self, arrivals: Sequence[Arrival]) -> Decision | None:
        """What the group has the transaction be made of, as soon as it can be asked; None: there is none."""
        if self.group is None:
            return None
        number, now, group = self.machine.number, datetime.now(UTC), self.group
        return self._agreed(lambda: group.decide(number, arrivals, now))

    def propose(self, arrivals: Sequence[Arrival]) -> int | None:
        """Have the group decide on rows for a later transaction than those that it has decided on; returns
        its number. None if that cannot be now."""
        if self.group is None:
            return None
        now, group = datetime.now(UTC), self.group
        named = [replace(arrival, table=self.engine.table(arrival.table).name) for arrival in arrivals]
        return self._agreed(lambda: group.propose(named, now))

    def _agreed(self, ask: Callable[[], T]) -> T:
        """Ask the group, again and again until it answers."""
        for pause in pauses():
            try:
                found = ask()
                self.error = None
                return found
            except ShardError as error:
                if not error.passing:
                    raise
                number = self.machine.number
                self.error = UnreachableError(f"transaction {number} waits for its group: {error}")
                _log.warning("%s", self.error)
                if self.stopping.wait(pause):
                    raise
        raise AssertionError("pauses have no end")

    def evaluate(self) -> None:
        """Evaluate the transaction under way, commit it and deliver it; or let it fail, and say why."""
        begin = time.monotonic()
        transaction = self.opened
        assert transaction is not None, "something was taken in"
        number = transaction.number
        verdict = self._verdict(number)
        if self.group is not None and verdict is Verdict.SKIPPED:
            self._skip_too(self.group, number)
            return
        self.machine = self.machine.after(Event.EVALUATE)
        self.error = None
        now = datetime.now(UTC) if self.group is None else transaction.steps[0].record.at
        # Reading holds the batches of the change back from being merged away until they are delivered.
        with self.engine.state.reading():
            try:
                result = self.run(number, inputs_of(transaction), now)
            except EvaluationError as error:
                self.machine = self.machine.after(Event.FAIL)
                self.error = error
                _log.error("%s", error)
                return
            self._agree_to_run(number, verdict)
            delivered = {o.name: o.delivered for o in self.outputs if not o.output.remembers}
            note: dict[str, Any] = {"changed": sorted({*result.changed, *self.carried})}
            if delivered:
                note["delivered"] = delivered
            self.append(Kind.COMMIT, at=now, digests=digests_of(result.digests, number), note=note)
            if self.group is not None:
                self.group.ran(now)
            self.machine = self.machine.after(Event.COMMIT)
            self._move(positions_of(transaction.steps))
            self.opened = None
            self.record(result, time.monotonic() - begin)
            self.deliver(result)
            self.machine = self.machine.after(Event.DELIVER)
        if self.storage.temporary and self.storage.journal.bytes > JOURNAL_BYTES:
            self.storage.journal.trim(self.storage.journal.rotate())

    def _verdict(self, number: int) -> Verdict | None:
        """What other replicas did with the transaction; None: nothing yet, or there are none."""
        group = self.group
        if group is None or number == self.first:
            return None
        if group.read_only:  # it may only go on from what the others have, too
            self._agreed(lambda: group.confirm(number - 1, self.dropped))
        return self._agreed(lambda: group.verdicts.of(number))

    def _skip_too(self, group: Group, number: int) -> None:
        """Go on without a transaction that another replica was told to skip."""
        if group.read_only:  # all before it have their verdicts by now
            self._agreed(lambda: group.confirm(number - 1, self.dropped))
        self.end(Event.SKIP, Kind.SKIP, {"reason": "another replica was told to skip it"})
        group.verdicts.confirmed = number
        _log.warning("transaction %d was skipped, as in another replica", number)

    def _agree_to_run(self, number: int, known: Verdict | None) -> None:
        """Have all replicas run a transaction that was evaluated here, before anything follows from it."""
        group = self.group
        if group is None or (number == self.first and number > 0):
            return
        if known is None and not self._agreed(lambda: group.runs(number)):
            raise StateError(f"transaction {number} was skipped by another replica while this one ran it.")
        if not group.read_only:
            group.verdicts.confirmed = number

    def _move(self, positions: dict[str, Any]) -> None:
        """Connectors stand there for good."""
        self.positions.update(positions)
        for runner in self.inputs:
            if runner.name in positions:
                runner.acknowledge(positions[runner.name])

    def end(self, event: Event, kind: Kind, note: dict[str, Any]) -> None:
        """End the transaction without effect."""
        after = self.machine.after(event)
        self.append(kind, note=note)
        steps = self.opened.steps if self.opened is not None else []
        gone = positions_of(steps)
        if event is Event.SKIP:
            self._move(gone)
        else:
            for runner in self.inputs:
                if runner.name in gone:
                    drop(runner.rewind(self.positions[runner.name]))
        if self.group is not None and steps:
            self.group.ran(steps[0].record.at)
        self.opened = None
        self.error = None
        self.dropped.add(self.machine.number)
        self._computed(self.machine.number)
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

    def readable(self, inputs: Mapping[str, Sequence[Fed]]) -> tuple[dict[str, list[Fed]], set[Owner]]:
        """What can still be read of recorded input, and of whose a part cannot be. Raises if that is not
        allowed; waits for sources that cannot be reached."""
        return self._patiently(lambda: self._readable(inputs))

    def may_lack(self, connector: str, transaction: Recorded) -> bool:
        """Whether it is in order that a connector gives a recorded transaction fewer rows than it did."""
        owner = Owner(connector, transaction.number)
        splits = [fed.split for feds in inputs_of(transaction).values() for fed in feds if fed.owner == owner]
        asked = [runner.input for runner in self.inputs if runner.name == connector]
        return any(self._patiently(partial(source.may_lack, splits)) for source in asked)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask sources about what was recorded or decided, as soon as they can be reached."""
        for pause in pauses():
            try:
                found = ask()
                self.error = None
                return found
            except UnreachableError as error:
                self.error = error
                _log.warning("what was recorded cannot be read yet: %s", error)
                if self.stopping.wait(pause):
                    raise
        raise AssertionError("pauses have no end")

    def _readable(self, inputs: Mapping[str, Sequence[Fed]]) -> tuple[dict[str, list[Fed]], set[Owner]]:
        gapped: dict[str, Input] = {}
        for runner in self.inputs:  # all of a connector's input at once, which is nearly always all there is
            feds = [fed for feds in inputs.values() for fed in feds if fed.owner is not None]
            own = [fed.split for fed in feds if fed.owner and fed.owner.connector == runner.name]
            if list(runner.input.readable(own)) != own:
                gapped[runner.name] = runner.input
        found: dict[str, list[Fed]] = {}
        gaps: set[Owner] = set()
        for table, given in inputs.items():
            found[table] = []
            for owner, feds_of in groupby(given, lambda fed: fed.owner):
                own = [fed.split for fed in feds_of]
                if owner is None or owner.connector not in gapped:
                    found[table] += [Fed(split, owner) for split in own]
                    continue
                left = list(gapped[owner.connector].readable(own))
                if left != own:
                    gaps.add(owner)
                found[table] += [Fed(split, owner) for split in left]
        return found, gaps

    def run(self, number: int, inputs: dict[str, list[Fed]], now: datetime) -> Result:
        """Evaluate as soon as every source that is read, and every host, does what it must."""
        for pause in pauses():
            try:
                result = self._evaluated(number, inputs, now)
                self.error = None
                return result
            except (UnreachableError, HostError) as error:
                self.error = error
                _log.warning("transaction %d is tried again: %s", number, error)
                if self.stopping.wait(pause):
                    raise EvaluationError(f"transaction {number} was not evaluated: {error}") from error
        raise AssertionError("pauses have no end")

    def _evaluated(self, number: int, inputs: dict[str, list[Fed]], now: datetime) -> Result:
        reading = {runner.name: runner.input.reading for runner in self.inputs}
        if self.group is not None:
            reading[HYDRATION] = self.group.reading
        inputs = {table: [fed.with_reading(reading) for fed in feds] for table, feds in inputs.items()}
        if self.engine.uses_clock:
            inputs[CLOCK] = [Fed(inline_split(clock_row(now)))]
        return self.engine.run(number, inputs, now=now, initial=number == self.first)

    def record(self, result: Result, seconds: float | None) -> None:
        """Count what a transaction did."""
        self.statistics.record(
            result.transaction,
            seconds,
            result.rows_in,
            result.errors,
            result.rows_out,
            result.growth,
            result.processed,
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
            batches = result.changed.get(view, {})
            readers = list(self.readers.get(view, ())) if batches else []
            outputs = [o for o in self.outputs if o.view == view and o.delivered < number and not o.joins]
            if not readers and not outputs:
                continue
            data = more = with_change_type(self.engine.change(view, batches))
            if view in self.carried:
                more = with_change_type(self.engine.change(view, batches, self.carried[view]))
            for output in outputs:
                output.put(number, more if output.carries else data)
            for reader in readers:
                reader.deliver(Change(number, data))
        for output in self.outputs:
            # With the first transaction of a generation all its replicas give all rows to what needs them.
            if output.whole and (self._announces or output.wants_whole):
                if output.delivered < number:
                    output.put_whole(number, with_change_type(self.engine.rows(output.view)))
                elif self._announces:
                    output.whole = False  # another replica gave them
            elif output.view not in result.changed and output.delivered < number and not output.joins:
                output.pass_on(number)
        for reader in self.all_readers():
            reader.advance(number)
        self._computed(number)
        self.carried = {}
        self.machine = self.machine.output(number)

    def _computed(self, number: int) -> None:
        for output in self.outputs:
            output.computed = number

    def pass_over(self, number: int) -> None:
        """Nobody lacks the changes up to a transaction."""
        self._computed(number)
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
