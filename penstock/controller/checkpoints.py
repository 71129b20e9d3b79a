"""Take checkpoints between two transactions, and let go of old ones and of the journal before them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.checkpoint.check import read_manifest
from penstock.checkpoint.model import Carried, Entry, Pending, Saved
from penstock.controller.machine import Event, State
from penstock.controller.transactions import JOURNAL_BYTES, Transactions
from penstock.errors import DamagedError, FencedError, HostError, StateError, StorageError
from penstock.failpoints import failpoint

_log = logging.getLogger("penstock")

RETENTION = 2
INTERVAL_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""An automatic checkpoint that failed, or had to wait, is tried again after this time."""


@dataclass(frozen=True)
class Policy:
    """When checkpoints are taken, how many are kept, and how they are looked at before they are used."""

    interval_s: float | None = INTERVAL_SECONDS
    retention: int = RETENTION
    eager: bool = False


class Checkpoints:
    """The last checkpoint, and the next one. `between` is held while a transaction is under way."""

    def __init__(
        self, transactions: Transactions, saved: Saved, between: threading.Lock, policy: Policy
    ) -> None:
        self.saved = saved
        self.last_error: str | None = None
        self._taking_since: datetime | None = None
        self.policy = policy if not transactions.storage.temporary else replace(policy, interval_s=None)
        self._transactions = transactions
        self._between = between
        self._saving = threading.Lock()
        self._positions: dict[str, tuple[int, Mapping[str, Any]]] = {}
        """The transactions of the checkpoints of this run, and where inputs stood then, by id."""
        self._next = self._later(self.policy.interval_s)

    @staticmethod
    def _later(seconds: float | None) -> float | None:
        return None if seconds is None else time.monotonic() + seconds

    @property
    def seconds_left(self) -> float | None:
        """Until it is time for the next one; None: never by itself."""
        return None if self._next is None else max(0.0, self._next - time.monotonic())

    @property
    def due(self) -> bool:
        """Whether it is time for one: so long after the last, or so much input."""
        if self._next is None or not (self._has_news or self._has_new_output):
            return False
        full = self._transactions.storage.journal.bytes >= JOURNAL_BYTES and self.last_error is None
        return full or time.monotonic() >= self._next

    @property
    def _has_news(self) -> bool:
        return self._transactions.machine.last > self.saved.transaction

    @property
    def _has_new_output(self) -> bool:
        """Whether an output waits for a checkpoint that knows it."""
        newest = self._transactions.storage.checkpoints.newest.id
        return any(o.needs is not None and o.needs > newest for o in self._transactions.outputs)

    @property
    def hindrance(self) -> str | None:
        """What a checkpoint has to wait for."""
        machine = self._transactions.machine
        if self._transactions.storage.temporary:
            return "the storage directory is temporary"
        if self._transactions.broken is not None:
            return "the pipeline cannot go on; stop it and start it again"
        if machine.replaying:
            return "the pipeline is replaying its journal"
        if machine.state is State.FAILED:
            return f"transaction {machine.number} could not be evaluated"
        if machine.state is not State.READY:
            return f"transaction {machine.number} is {machine.state}"
        failed = [output.name for output in self._transactions.outputs if output.error is not None]
        if failed:
            return f"the output {failed[0]} failed, and what it lacks is only in the journal"
        return None

    def take_if_due(self) -> None:
        """Take one if it is time; a failure is reported and the next attempt comes later."""
        wait = self.policy.interval_s
        if not self.due:
            if self.seconds_left == 0:  # nothing happened since the last one
                self._next = self._later(wait)
            return
        try:
            self.take()
        except (StateError, FencedError):
            wait = RETRY_SECONDS
        except DamagedError:
            raise
        except (StorageError, HostError) as error:
            _log.error("%s", error)
            wait = RETRY_SECONDS
        self._next = self._later(wait)

    def take(self, name: str | None = None) -> Entry:
        """Take one now; `StateError` says what it has to wait for, `FencedError` who took over."""
        with self._saving:
            self._taking_since = datetime.now(UTC)
            try:
                entry = self._take(name)
            except (StorageError, HostError) as error:
                self.last_error = str(error)
                raise
            finally:
                self._taking_since = None
            self._let_go()
            return entry

    def _take(self, name: str | None) -> Entry:
        t = self._transactions
        if self.hindrance is None:
            t.engine.state.verify_rest()  # an older checkpoint may have to be let go of for this one
        with self._between:
            hindrance = self.hindrance
            if isinstance(t.broken, FencedError):
                raise t.broken
            if hindrance is not None:
                raise StateError(f"no checkpoint can be taken: {hindrance}")
            t.machine.after(Event.CHECKPOINT)
            saved = self._state(t.machine.last, t.storage.journal.rotate())
            changes = self._changes()
            traces = t.engine.state.keep_more()
        entry = t.storage.checkpoints.commit(saved, traces, changes, name)
        self.saved = saved
        self._positions[entry.id] = (saved.transaction, saved.positions)
        self.last_error = None
        return entry

    def take_after_replay(self, transaction: int, record: int) -> None:
        """Take one where the replay ended, for another program to go on from; `record` comes next."""
        t = self._transactions
        t.engine.state.verify_rest()
        saved = self._state(transaction, record)
        t.storage.checkpoints.commit(saved, t.engine.state.keep_more(), self._changes())

    def _state(self, transaction: int, record: int) -> Saved:
        t = self._transactions
        return replace(
            self.saved,
            transaction=transaction,
            record=record,
            rows=dict(t.statistics.rows),
            circuit=sorted(t.engine.circuit.traces),
            positions=dict(t.positions),
            paused=dict(t.paused),
            delivered=self._delivered(transaction),
            statistics=t.statistics.saved(),
            confirmed=transaction if t.group is None else min(transaction, t.group.verdicts.confirmed),
        )

    def _delivered(self, transaction: int) -> dict[str, int]:
        """What outputs have. One that was left out is remembered as long as it has missed nothing."""
        found = {output.name: output.delivered for output in self._transactions.outputs}
        if transaction > self.saved.transaction:
            return found
        behind = {waiting.output for waiting in self.saved.waiting.values()}
        return {**{n: d for n, d in self.saved.delivered.items() if n not in behind}, **found}

    def _changes(self) -> list[Pending | Carried]:
        """What outputs still have to get."""
        t = self._transactions
        waiting: list[Pending | Carried] = [
            Pending(output.name, number, changes)
            for output in t.outputs
            for number, changes in output.waiting()
        ]
        carried = [Carried(view, rows.to_table()) for view, rows in t.carried.items()]
        return [*waiting, *carried]

    def verify(self, reference: str) -> Entry:
        """Look at every byte of a checkpoint; `DamagedError` has all faults."""
        store = self._transactions.storage.checkpoints
        return store.verify(store.find(reference)).entry

    def shares_damage(self, reference: str) -> bool:
        """Whether the pipeline itself has, or has merged, a batch of a checkpoint that is damaged now."""
        store = self._transactions.storage.checkpoints
        try:
            traces = read_manifest(store.root, store.find(reference)).traces
        except DamagedError:
            return False
        try:
            self._transactions.engine.state.refuse_damaged(traces)
        except DamagedError:
            return True
        return False

    def delete(self, reference: str) -> Entry:
        """Let go of a checkpoint, and of what only it has."""
        store = self._transactions.storage.checkpoints
        with self._saving:
            entry = store.find(reference)
            self._transactions.engine.state.keep(*store.delete(entry))
            return entry

    def _let_go(self) -> None:
        """Old checkpoints, and what only they need. If that is not possible, the checkpoint still stands."""
        t = self._transactions
        if t.broken is not None:
            return
        try:
            needed, gone = t.storage.checkpoints.retire(self.policy.retention)
            t.engine.state.keep(needed, gone)
            kept = t.storage.checkpoints.kept(self.policy.retention)
            with self._between:
                t.storage.journal.trim(min(entry.record for entry in kept))
            self._release(min(kept, key=lambda entry: entry.record).id)
        except StorageError as error:
            self.last_error = str(error)
            _log.error("%s", error)
            return
        failpoint("checkpoint.trimmed")

    def _release(self, oldest: str) -> None:
        """Inputs need not keep what lies before the oldest checkpoint that the journal leads on from; but
        what other replicas have not run yet is kept until they hold it themselves."""
        group = self._transactions.group
        passed = [
            id_
            for id_, (transaction, _) in self._positions.items()
            if id_ <= oldest and (group is None or transaction <= group.since)
        ]
        if not passed:  # it was taken by an earlier run
            return
        positions = self._positions[max(passed)][1]
        self._positions = {id_: found for id_, found in self._positions.items() if id_ >= max(passed)}
        for runner in self._transactions.inputs:
            if runner.name in positions:
                runner.release(positions[runner.name])

    def stats(self) -> dict[str, Any]:
        newest = self._transactions.storage.checkpoints.retained(1)[-1]
        return {
            "transaction": self.saved.transaction,
            "id": newest.id,
            "at": newest.at.isoformat(),
            "taking_since": None if self._taking_since is None else self._taking_since.isoformat(),
            "waits_for": self.hindrance,
            "last_error": self.last_error,
        }
