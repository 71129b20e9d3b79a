"""The life of a transaction: every state, every event, and what follows from it.

Nothing here does anything: no files, no clock, no threads. The controller asks before it acts, and what is
not in the table does not happen. What holds, always:

- One transaction is open at a time.
- Numbers are contiguous, across restarts too: a transaction that is rolled back or skipped keeps its number.
- A checkpoint is taken only between transactions.
- Outputs carry strictly increasing numbers; a transaction that changes nothing is not delivered.
- While recorded transactions are run again, nothing else happens and new input waits: a recorded boundary is
  where it was.
- The initial transaction computes the views from nothing; none can go on without it. It has number 0, or
  that of the rows which a replica began with.
- A crash forgets every event that is not in the journal. So the last transaction may lack its end. One that
  the engine opened is completed. One that a client opened stays open under its number, whether or not its
  commit had begun: it must not take effect by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.errors import StateError


class State(StrEnum):
    """Where the transaction numbered `last + 1` stands."""

    READY = "ready"  # it has not begun
    OPEN = "open"  # a client opened it, and its steps gather
    STEPPED = "stepped"  # the engine opened it: its one step is in the journal
    EVALUATING = "evaluating"
    FAILED = "failed"  # it could not be evaluated, and did not take effect
    COMMITTED = "committed"  # its commit is in the journal, and outputs get their changes


class Event(StrEnum):
    """What happens to it."""

    BEGIN = "begin"
    STEP = "step"
    EVALUATE = "evaluate"
    COMMIT = "commit"
    FAIL = "fail"
    DELIVER = "deliver"
    ROLL_BACK = "roll-back"
    SKIP = "skip"
    CHECKPOINT = "checkpoint"


JOURNALED = frozenset({Event.BEGIN, Event.STEP, Event.COMMIT, Event.ROLL_BACK, Event.SKIP})
"""The events that survive a crash: each is in the journal before anything follows from it."""

LIVE: Mapping[tuple[State, Event], State] = {
    (State.READY, Event.BEGIN): State.OPEN,
    (State.READY, Event.STEP): State.STEPPED,
    (State.READY, Event.CHECKPOINT): State.READY,
    (State.OPEN, Event.STEP): State.OPEN,
    (State.OPEN, Event.EVALUATE): State.EVALUATING,
    (State.OPEN, Event.ROLL_BACK): State.READY,
    (State.STEPPED, Event.EVALUATE): State.EVALUATING,
    (State.STEPPED, Event.SKIP): State.READY,
    (State.EVALUATING, Event.COMMIT): State.COMMITTED,
    (State.EVALUATING, Event.FAIL): State.FAILED,
    (State.FAILED, Event.EVALUATE): State.EVALUATING,
    (State.FAILED, Event.ROLL_BACK): State.READY,
    (State.FAILED, Event.SKIP): State.READY,
    (State.COMMITTED, Event.DELIVER): State.READY,
}
"""What may happen while a pipeline runs."""

RECORDED: Mapping[tuple[State, Event], State] = {
    (State.READY, Event.BEGIN): State.OPEN,
    (State.READY, Event.STEP): State.STEPPED,
    (State.OPEN, Event.STEP): State.OPEN,
    (State.OPEN, Event.COMMIT): State.READY,
    (State.OPEN, Event.ROLL_BACK): State.READY,
    (State.OPEN, Event.SKIP): State.READY,
    (State.STEPPED, Event.COMMIT): State.READY,
    (State.STEPPED, Event.SKIP): State.READY,
}
"""What a journal may say, which tells only of the events that survive."""

_ENDS = frozenset({Event.DELIVER, Event.ROLL_BACK, Event.SKIP})


@dataclass(frozen=True)
class Machine:
    """A moment in the life of a pipeline's transactions."""

    last: int
    """The last transaction that ended, in whatever way; -1: none."""
    state: State = State.READY
    client: bool = False
    """Whether a client opened the transaction that has not ended."""
    delivered: int = -1
    """The last transaction that outputs were given."""
    replaying: bool = False
    first: int = 0
    """The initial transaction."""

    @property
    def number(self) -> int:
        """The transaction that is under way, or the next one."""
        return self.last + 1

    @property
    def takes_input(self) -> bool:
        return not self.replaying and self.state in (State.READY, State.OPEN)

    def after(self, event: Event) -> Machine:
        """The moment after an event; `StateError` if it cannot happen now."""
        if self.replaying:
            raise StateError(
                f"transaction {self.number} is being replayed; wait until the pipeline is running"
            )
        state = LIVE.get((self.state, event))
        if state is None:
            raise StateError(self._refusal(event))
        if event is Event.ROLL_BACK and not self.client:
            raise StateError(
                f"no client opened transaction {self.number}, so it cannot be rolled back; it can be skipped"
            )
        if event is Event.SKIP:
            refuse_skip(self.number, self.first)
        client = event is Event.BEGIN or (self.client and event not in _ENDS)
        last = self.number if event in _ENDS else self.last
        return replace(self, state=state, client=client, last=last)

    def output(self, number: int) -> Machine:
        """The moment after outputs were given a transaction's changes."""
        if number <= self.delivered:
            raise StateError(f"transaction {number} was to be delivered after transaction {self.delivered}")
        return replace(self, delivered=number)

    def _refusal(self, event: Event) -> str:
        match self.state, event:
            case _, Event.BEGIN if self.client:
                return f"transaction {self.number} is already open; commit it or roll it back first"
            case State.FAILED, _:
                return (
                    f"transaction {self.number} could not be evaluated, and the pipeline is paused. Resume it"
                    " to try again, or skip that transaction"
                )
            case State.READY, Event.EVALUATE | Event.ROLL_BACK:
                return "no transaction is open; start one first"
            case State.READY, Event.SKIP:
                return "no transaction has failed, so there is none to skip"
        return f"transaction {self.number} is {self.state}: it cannot {event} now"


def refuse_skip(number: int, first: int) -> None:
    """`StateError` if that transaction cannot be done without."""
    if number != first:
        return
    if first == 0:
        raise StateError(
            "transaction 0 computes the views from nothing, so it cannot be skipped. Correct what keeps it"
            " from being evaluated, or start with an empty storage directory"
        )
    raise StateError(
        f"transaction {number} is the first of this replica: it has all that the tables had, and computes the"
        " views from that, so it cannot be skipped. Correct what keeps it from being evaluated, or start the"
        " replica with an empty storage directory: it begins with what the tables have then"
    )


def recorded(last: int, events: Iterable[tuple[Event, int]], first: int = 0) -> Machine:
    """Where a journal leaves off: `events` are its records, with their numbers, since transaction `last`;
    `first` is the initial one."""
    machine = Machine(last, first=first)
    for event, number in events:
        if number != machine.number:
            raise StateError(
                f"the journal has a {event} of transaction {number} where {machine.number} was due"
            )
        state = RECORDED.get((machine.state, event))
        if state is None:
            raise StateError(f"the journal has a {event} of transaction {number}, which is {machine.state}")
        if event is Event.SKIP:
            refuse_skip(number, first)
        ended = state is State.READY
        machine = replace(
            machine,
            state=state,
            client=state is State.OPEN,
            last=number if ended else machine.last,
        )
    return machine
