"""Save the state between two transactions, and let go of the journal up to there."""

from __future__ import annotations

import threading
from dataclasses import replace

from penstock.controller.machine import Event, State
from penstock.controller.storage import Saved
from penstock.controller.transactions import JOURNAL_BYTES, Transactions
from penstock.failpoints import failpoint


class Checkpoints:
    """The last state that was saved, and the next one. `between` is held while a transaction is under way."""

    def __init__(self, transactions: Transactions, saved: Saved, between: threading.Lock, every: int) -> None:
        self.saved = saved
        self._transactions = transactions
        self._between = between
        self._every = every
        self._saving = threading.Lock()

    @property
    def due(self) -> bool:
        """Whether so many transactions, or so many bytes, would have to be replayed that it is time."""
        if not self._every:
            return False
        since = self._transactions.machine.last - self.saved.transaction
        full = self._transactions.storage.journal.bytes >= JOURNAL_BYTES
        return since >= self._every or (since > 0 and full)

    @property
    def hindrance(self) -> str | None:
        """What a checkpoint has to wait for."""
        machine = self._transactions.machine
        if self._transactions.broken:
            return "the pipeline cannot go on; stop it and start it again"
        if machine.replaying:
            return "the pipeline is replaying its journal"
        if machine.state is State.FAILED:
            return f"transaction {machine.number} could not be evaluated"
        if machine.state is not State.READY:
            return f"transaction {machine.number} is {machine.state}"
        behind = [output.name for output in self._transactions.outputs if output.behind]
        return f"the output {behind[0]} is behind" if behind else None

    def take(self) -> bool:
        """Take one now; False if that is not possible, for the reason that `hindrance` gives."""
        if self._transactions.storage.temporary:
            return False
        with self._saving:
            return self._take()

    def _take(self) -> bool:
        t = self._transactions
        state, journal = t.engine.state, t.storage.journal
        with self._between:
            if self.hindrance is not None:
                return False
            t.machine.after(Event.CHECKPOINT)
            saved = replace(
                self.saved,
                transaction=t.machine.last,
                record=journal.rotate(),
                rows=dict(t.statistics.rows),
                circuit=sorted(t.engine.circuit.traces),
                traces=state.keep_more(self.saved.traces),
                positions=dict(t.positions),
                paused=dict(t.paused),
                delivered={output.name: output.delivered for output in t.outputs},
            )
        t.storage.save(saved)
        self.saved = saved
        state.keep(saved.traces)
        with self._between:
            journal.trim(saved.record)
        failpoint("checkpoint.trimmed")
        return True
