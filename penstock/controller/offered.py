"""What a replica took in, while its group decides what each transaction is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.controller.inputs import InputRunner
from penstock.controller.transactions import Transactions
from penstock.controller.work import Work, WorkQueue, drop
from penstock.errors import StateError
from penstock.journal.record import API
from penstock.replica.decision import Decision

MOST_LOST = 1000
"""Of so much that connectors gave in vain it is remembered where it has to come again."""


class Offered:
    """Work that was taken from the queue and is in no transaction yet: another replica was faster. For the
    thread that runs transactions."""

    def __init__(self, transactions: Transactions, inputs: Sequence[InputRunner], queue: WorkQueue) -> None:
        self._transactions = transactions
        self._inputs = inputs
        self._queue = queue
        self._ahead: tuple[int, list[Work]] | None = None
        """Rows of clients that this replica decided on before it ran all that comes before them: in which
        transaction they are."""
        self._lost: list[Work] = []
        """What connectors gave here when another replica had decided on another range: the same records come
        in that or in a later one."""

    @property
    def waits(self) -> bool:
        """Whether rows of clients were decided on ahead."""
        return self._ahead is not None

    def go_by(self, decision: Decision, works: Sequence[Work]) -> list[Work]:
        """The transaction is made of what another replica decided: what else was taken waits for the next.
        Returns the works that are done with."""
        done: list[Work] = []
        for runner in self._inputs:
            if runner.name not in decision.positions:
                continue
            position = decision.positions[runner.name]
            own = [work for work in works if work.connector == runner.name]
            if own and own[-1].arrivals[-1].position == position:
                done += own  # it stands where the decision leaves it: what it gave since goes on from there
            else:
                self._lost += [*own, *runner.rewind(position)]
        self._queue.give_back(self._decide_ahead([w for w in works if w.connector not in decision.positions]))
        return done

    def found_again(self, positions: Mapping[str, Any]) -> list[Work]:
        """What connectors gave and others were faster with, as far as a transaction brings it: the connectors
        stand at these positions after it."""
        inputs = {runner.name: runner.input for runner in self._inputs}
        found = [
            work
            for work in self._lost
            if work.connector in positions
            and inputs[work.connector].has_reached(positions[work.connector], work.arrivals[-1].position)
        ]
        self._lost = [work for work in self._lost if work not in found]
        drop(self._lost[:-MOST_LOST])
        self._lost = self._lost[-MOST_LOST:]
        return found

    def _decide_ahead(self, works: Sequence[Work]) -> Sequence[Work]:
        """Have the group decide on rows of clients for a transaction after all that others decided on: in a
        slow replica they would never be in the next one. One transaction at a time; returns what waits."""
        sent = [work for work in works if work.connector == API]
        if not sent or self._ahead is not None:
            return works
        number = self._transactions.propose([arrival for work in sent for arrival in work.arrivals])
        if number is None:
            return works
        self._ahead = (number, sent)
        return [work for work in works if work not in sent]

    def due(self, number: int) -> list[Work]:
        """What was decided on ahead for a transaction, which is run now."""
        if self._ahead is None or self._ahead[0] != number:
            return []
        works, self._ahead = self._ahead[1], None
        return works

    def end(self) -> None:
        """Say of all that is left that it was not run here."""
        if self._ahead is not None:
            number, works = self._ahead
            for work in works:
                work.error = StateError(
                    f"the pipeline was stopped before transaction {number}, which has these rows, was run"
                    " here; it is run by the other replicas, and after a start"
                )
                work.done.set()
        drop(self._lost)
