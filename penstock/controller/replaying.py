"""Carry out the plan of a recovery."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.checkpoint.store import Restored
from penstock.connectors import NOTHING
from penstock.connectors.output.shard import ShardOutput
from penstock.controller.changes import with_change_type
from penstock.controller.machine import State
from penstock.controller.outputs import OutputRunner
from penstock.controller.recovery import (
    Complete,
    Plan,
    Recorded,
    Reopen,
    Replay,
    digests_of,
    fewer,
    inputs_of,
    joined,
    plan,
    positions_of,
    verify,
)
from penstock.controller.retry import pauses
from penstock.controller.transactions import Transactions
from penstock.errors import EvaluationError, ReplayError, StateError, StorageError
from penstock.failpoints import failpoint
from penstock.journal.journal import Entry
from penstock.journal.record import API, Kind
from penstock.plan.rules.view import row_layout
from penstock.replica.group import HYDRATION
from penstock.trace.rows import Rows

_log = logging.getLogger("penstock")


@dataclass
class Durations:
    """How long the way to a running pipeline took, in seconds; None: not there yet."""

    spark_s: float
    spark_ready: float
    """When Spark was there, and loading began."""
    load_s: float | None = None
    replay_s: float | None = None


@dataclass
class Progress:
    """How far a replay has come."""

    transactions: int
    rows: int
    transactions_done: int = 0
    rows_done: int = 0
    began: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """About; None before anything is done."""
        share = (
            self.rows_done / self.rows if self.rows else self.transactions_done / max(self.transactions, 1)
        )
        return (time.monotonic() - self.began) * (1 - share) / share if 0 < share < 1 else None

    def __str__(self) -> str:
        left = self.seconds_left
        end = "" if left is None else f", about {left:.0f} s left"
        return (
            f"replayed {self.transactions_done:,} of {self.transactions:,} transactions,"
            f" {self.rows_done:,} of {self.rows:,} rows{end}"
        )


class Replayer:
    """Brings transactions to where they were when the pipeline ended."""

    def __init__(self, transactions: Transactions, restored: Restored, durations: Durations) -> None:
        self.progress = Progress(0, 0)
        self.durations = durations
        self.saved = restored.checked.saved
        self._restored = restored
        self._t = transactions
        self._made: Plan | None = None

    def recover(self) -> None:
        """Load the last checkpoint, and run again what was recorded after it."""
        saved = self.saved
        self._t.engine.state.load(self._restored.checked.manifest.traces, verified=self._restored.deep)
        self._t.engine.circuit.prepare()
        unknown = set(self._t.engine.circuit.traces) - set(saved.circuit)
        if saved.transaction >= saved.first and unknown:
            raise StorageError(
                f"Spark plans the program otherwise than when {self._t.storage.path} was written: the saved"
                f" state lacks {', '.join(sorted(unknown))}. Use the version of Spark and Penstock that wrote"
                " it, or start with an empty directory."
            )
        self._t.carried = {
            item.view: Rows.from_table(row_layout(self._t.engine.relation(item.view).schema), item.changes)
            for item in self._restored.checked.carried
        }
        entries = self._t.storage.journal.open(saved.record)
        led = frozenset(o.name for o in self._t.outputs if not o.output.by_every_replica)
        computed = self._t.computed(saved)
        if self._t.group is not None:
            self._t.group.refuse(computed, led)
        self._open_outputs(entries)
        for output in self._t.outputs:
            output.computed = saved.transaction
        made = plan(entries, saved.transaction, saved.positions, self._all_have, saved.first)
        if self._t.group is not None:
            decided = made.machine.last if made.machine.state is State.READY else made.machine.number
            # A later first transaction is not what was decided, but all that had been before.
            last = max(decided, saved.first) if saved.first else decided
            confirmed = max(saved.confirmed, saved.first)
            self._t.group.join(last, computed, led, confirmed)
            self._t.dropped |= {e.record.transaction for e in entries if e.record.kind is Kind.SKIP}
            if (before := self._t.group.before) is not None:
                for output in self._t.outputs:
                    output.whole = output.output.remembers and not computed.keeps(output.name, before)
                    if isinstance(output.output, ShardOutput):
                        output.output.check(output.schema)
        self._check_inputs(made)
        self._check_outputs(made)
        self._hand_over()
        for stage in made.stages[:3]:
            _log.info("recovery will %s", stage)
        self._t.positions = dict(made.positions)
        self.progress = Progress(made.transactions, made.rows, began=time.monotonic())
        self.durations.load_s = self.progress.began - self.durations.spark_ready
        for stage in made.stages:
            if isinstance(stage, Replay):
                self._replay(stage)
        self.durations.replay_s = time.monotonic() - self.progress.began
        if made.transactions:
            _log.warning("recovered: %s", self.progress)
        for output in self._t.outputs:
            if output.joins:
                self._join_output(output, made.machine.last)
        failpoint("replay.ended")
        self._made = made

    def stats(self) -> dict[str, Any]:
        """How long a recovery took, and what it ran again."""
        return {
            "spark_s": self.durations.spark_s,
            "load_s": self.durations.load_s,
            "replay_s": self.durations.replay_s,
            "transactions": self.progress.transactions_done,
            "rows": self.progress.rows_done,
        }

    def end(self) -> tuple[int, int]:
        """The last transaction that ended, and the record that comes after it; for who goes no further."""
        made = self._made
        assert made is not None, "recovered"
        self._t.paused.update(made.paused)
        last = made.stages[-1] if made.stages else None
        waits = last.transaction.steps[0].number if isinstance(last, Complete) else None
        return made.machine.last, self._t.storage.journal.next if waits is None else waits

    def complete(self) -> None:
        """Go on with the transaction that had not ended; from here on the pipeline may be asked anything."""
        made = self._made
        assert made is not None, "recovered"
        last = made.stages[-1] if made.stages and not isinstance(made.stages[-1], Replay) else None
        self._seek_inputs(made, last.transaction if last is not None else None)
        self._t.machine = replace(made.machine, delivered=self._t.machine.delivered)
        if last is not None:
            self._t.readable(inputs_of(last.transaction))  # or it would be read from something else
        if isinstance(last, Reopen):
            self._t.opened = last.transaction
        elif isinstance(last, Complete):
            self._t.opened = last.transaction
            self._t.evaluate()
        elif self._t.machine.last < self.saved.first and self.saved.first:
            self._t.hydrate()
            self._t.evaluate()
        elif self._t.machine.last < self.saved.first or self._t.carried:
            if (decision := self._t.step([])) is not None:
                for runner in self._t.inputs:
                    if runner.name in decision.positions:
                        runner.input.seek(decision.positions[runner.name])
            self._t.evaluate()
        if self._t.machine.last < self.saved.first and self._t.error is not None:
            raise self._t.error  # no pipeline is without its first transaction

    def _replay(self, stage: Replay) -> None:
        last = stage.last.number
        for output in self._t.outputs:
            output.keep_up()  # what is held waits for a checkpoint, and none is taken now
        self._refuse_if_stopping()
        inputs, gaps = self._t.readable(inputs_of(*stage.transactions))
        with self._t.engine.state.reading():
            try:
                result = self._t.run(last, inputs, stage.at)
            except EvaluationError as error:
                self._refuse_if_stopping()
                raise ReplayError(
                    f"transaction {last} was committed and cannot be replayed: {error.reason or error}"
                    " Restore what its connectors read, or start with an empty storage directory."
                ) from error
            for transaction in stage.transactions:
                assert transaction.end is not None
                now = digests_of(result.digests, transaction.number)
                known = {gap.connector for gap in gaps if gap.transaction == transaction.number}
                for name in fewer(transaction.end.digests, now):
                    if name not in known and self._t.may_lack(name, transaction):
                        known.add(name)
                verify(transaction.number, transaction.end.digests, now, gaps=known)
            self._t.record(result, None)
            self.progress.transactions_done += len(stage.transactions)
            self.progress.rows_done += sum(transaction.rows for transaction in stage.transactions)
            if len(stage.transactions) == 1:
                self._t.deliver(result)
            else:
                self._t.pass_over(last)  # every output has each of them
            self._t.machine = replace(self._t.machine, last=last)
        failpoint("replay.transaction")

    def _refuse_if_stopping(self) -> None:
        if self._t.stopping.is_set():
            raise StateError(
                "the pipeline was stopped while it replayed its journal; it begins again at a start"
            )

    def _open_outputs(self, entries: Sequence[Entry]) -> None:
        known = dict(self.saved.delivered)
        for entry in entries:
            known.update(entry.record.note.get("delivered", {}))
        began = joined(entries, self.saved.meaning)
        for output in self._t.outputs:
            output.least = self.saved.delivered.get(output.name, NOTHING)
            output.unsure = self._has_later(entries, output, known.get(output.name, NOTHING))
            output.open(known.get(output.name, NOTHING))
            if self.saved.transaction >= self.saved.first and not output.follows:
                self._admit(output, began.get(output.name))

    def _has_later(self, entries: Sequence[Entry], output: OutputRunner, known: int) -> bool:
        """Whether there was anything for an output after what it is known to have."""
        changed = (e.record for e in entries if output.view in e.record.note.get("changed", ()))
        return any(record.transaction > known for record in changed) or any(
            item.output == output.name and item.transaction > known for item in self._restored.checked.pending
        )

    def _admit(self, output: OutputRunner, began: int | None) -> None:
        """What came before the checkpoint is not in the journal: an output that has nothing of it begins with
        the rows that its view has, and one that has only a part of it can be given neither. Of one that the
        checkpoint does not know, and that did not begin since, nobody can tell what it missed."""
        known = output.name in self.saved.delivered
        if not known:
            grown = pauses()  # only the output itself can tell whether it is new
            while not output.opened:
                if self._t.stopping.wait(next(grown)):
                    self._refuse_if_stopping()
                output.open(NOTHING)
            output.least = self.saved.transaction if began is None else began
        if not output.opened or (output.delivered >= output.least and (known or began is not None)):
            output.carries = known
            return
        if output.delivered > NOTHING:
            raise output.gap()
        output.joins = True

    def _hand_over(self) -> None:
        """Give outputs what they did not have yet when the checkpoint was taken."""
        for item in self._restored.checked.pending:
            output = next((o for o in self._t.outputs if o.name == item.output), None)
            if output is None:
                _log.warning(
                    "transaction %d waited for the output %s, which is gone", item.transaction, item.output
                )
            elif output.delivered < item.transaction and not output.joins:
                output.put(item.transaction, item.changes)

    def _all_have(self, transaction: Recorded) -> bool:
        return all(
            output.delivered >= transaction.number or output.joins or output.view not in transaction.changed
            for output in self._t.outputs
        )

    def _join_output(self, output: OutputRunner, last: int) -> None:
        """Give a new output the rows that its view has, as the change of the last transaction."""
        note = {"output": output.name, "transaction": last, "program": self.saved.meaning}
        self._t.append(Kind.JOIN, note=note)
        rows = self._t.engine.rows(output.view)
        if output.limit is not None:
            output.needs = f"{self._t.storage.checkpoints.newest.id}+"  # a later one than that
        if rows.num_rows:
            output.put(last, with_change_type(rows))
        output.joins = False

    def _check_inputs(self, made: Plan) -> None:
        known = {API, HYDRATION, *(runner.name for runner in self._t.inputs)}
        needed = [
            t for s in made.stages for t in (s.transactions if isinstance(s, Replay) else [s.transaction])
        ]
        for entry in [step for transaction in needed for step in transaction.steps]:
            for portion in entry.record.portions:
                if portion.connector not in known:
                    raise ReplayError(
                        f"transaction {entry.record.transaction} cannot be replayed: it has rows of the"
                        f" connector {portion.connector}, which the program does not have. Start the program"
                        " with that connector and stop it, which takes a checkpoint; then leave it out."
                    )

    def _check_outputs(self, made: Plan) -> None:
        if self._t.group is not None:
            return  # other replicas may be ahead
        end = made.machine.last if made.machine.state is State.READY else made.machine.number
        for output in self._t.outputs:
            output.most = end
            if output.delivered > end:
                raise output.ahead()

    def _seek_inputs(self, made: Plan, last: Recorded | None) -> None:
        positions = {**made.positions, **(positions_of(last.steps) if last is not None else {})}
        self._t.paused.update(made.paused)
        for runner in self._t.inputs:
            # Where a roll-back takes it, if no transaction has ended that it gave something to.
            self._t.positions.setdefault(runner.name, runner.input.position)
            if runner.name in positions:
                runner.input.seek(positions[runner.name])
            runner.paused = self._t.paused.get(runner.name, runner.settings.paused)
