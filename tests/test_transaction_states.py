"""What may happen to a transaction, and what a crash leaves of it: no Spark, no files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.controller.machine import JOURNALED, LIVE, RECORDED, Event, Machine, State, recorded
from penstock.errors import StateError

Journal = tuple[tuple[Event, int], ...]

_PAIRS = list(itertools.product(State, Event))


def _moments(first: int = 0, depth: int = 8) -> Iterator[tuple[Machine, Journal]]:
    """Every moment that a few events can lead to after transaction `first`, and its journal."""
    moments: list[tuple[Machine, Journal]] = [(Machine(first), ())]
    seen = set(moments)
    for _ in range(depth):
        yield from moments
        following = []
        for machine, journal in moments:
            for event in Event:
                try:
                    after = machine.after(event)
                except StateError:
                    continue
                told = (*journal, (event, machine.number)) if event in JOURNALED else journal
                if (after, told) not in seen:
                    seen.add((after, told))
                    following.append((after, told))
        moments = following


MOMENTS = list(_moments())
IN_STATE = {
    (machine.state, machine.client): machine
    for machine, _ in sorted(MOMENTS, key=lambda m: -m[0].last)  # the earliest of each
}


def _machines(state: State) -> list[Machine]:
    return [machine for (found, _), machine in IN_STATE.items() if found is state]


def test_every_state_is_reachable() -> None:
    assert {state for state, _ in IN_STATE} == set(State)


def test_a_client_can_have_opened_whatever_did_not_end_except_an_engines_step() -> None:
    assert {state for state, client in IN_STATE if client} == set(State) - {State.READY, State.STEPPED}


@pytest.mark.parametrize(("state", "event"), sorted(LIVE))
def test_what_is_in_the_table_can_happen(state: State, event: Event) -> None:
    after = set()
    for machine in _machines(state):
        try:
            after.add(machine.after(event).state)
        except StateError:
            assert event is Event.ROLL_BACK, "what depends on more than the state is who may roll back"
            assert not machine.client
    assert after == {LIVE[state, event]}


@pytest.mark.parametrize(("state", "event"), sorted(set(_PAIRS) - set(LIVE)))
def test_what_is_not_in_the_table_is_refused_in_words(state: State, event: Event) -> None:
    for machine in _machines(state):
        with pytest.raises(StateError) as caught:
            machine.after(event)
        _assert_readable(str(caught.value), machine.number)


def _assert_readable(text: str, number: int) -> None:
    assert len(text.split()) >= 5, text
    assert f"transaction {number}" in text or "no transaction" in text, text
    assert not re.search(r"State\.|Event\.|<|None|\bTrue\b|\bFalse\b", text), text


def test_all_that_a_journal_may_say_is_what_was_written() -> None:
    """Every pair of the recorded table is reached by a live journal, and a live journal reaches no other."""
    reached = set()
    for _, journal in MOMENTS:
        for end in range(len(journal)):
            machine = recorded(0, journal[:end])
            reached.add((machine.state, journal[end][0]))
    assert reached == set(RECORDED)


RECORDED_MACHINES = [Machine(4), Machine(4, State.OPEN, client=True), Machine(4, State.STEPPED)]


@pytest.mark.parametrize("machine", RECORDED_MACHINES, ids=lambda m: m.state)
@pytest.mark.parametrize("event", Event)
def test_what_a_journal_may_not_say_is_refused_in_words(machine: Machine, event: Event) -> None:
    before: dict[State, list[tuple[Event, int]]] = {
        State.READY: [],
        State.OPEN: [(Event.BEGIN, 5)],
        State.STEPPED: [(Event.STEP, 5)],
    }
    journal = before[machine.state]
    assert recorded(4, journal) == machine
    if (machine.state, event) in RECORDED:
        after = recorded(4, [*journal, (event, 5)])
        assert after.state is RECORDED[machine.state, event]
        assert after.last == (5 if after.state is State.READY else 4)
    else:
        with pytest.raises(StateError, match=rf"the journal has a {event} of transaction 5, which is"):
            recorded(4, [*journal, (event, 5)])


@pytest.mark.parametrize("number", [-1, 0, 4, 6, 7])
def test_a_number_that_is_not_due_is_refused(number: int) -> None:
    with pytest.raises(StateError, match=f"of transaction {number} where 5 was due"):
        recorded(4, [(Event.STEP, number)])
    with pytest.raises(StateError, match=f"a commit of transaction {number} where 5 was due"):
        recorded(4, [(Event.STEP, 5), (Event.COMMIT, number)])


def test_nothing_happens_while_recorded_transactions_are_run_again() -> None:
    for machine in IN_STATE.values():
        waiting = replace(machine, replaying=True)
        assert not waiting.takes_input
        for event in Event:
            with pytest.raises(StateError, match=f"transaction {machine.number} is being replayed; wait"):
                waiting.after(event)


def test_the_initial_transaction_cannot_be_skipped() -> None:
    failed = Machine(-1).after(Event.STEP).after(Event.EVALUATE).after(Event.FAIL)
    with pytest.raises(StateError, match="transaction 0 computes the views from nothing"):
        failed.after(Event.SKIP)
    with pytest.raises(StateError, match="transaction 0 computes the views from nothing"):
        recorded(-1, [(Event.STEP, 0), (Event.SKIP, 0)])


def test_the_first_transaction_of_a_replica_cannot_be_skipped() -> None:
    failed = Machine(6, first=7).after(Event.STEP).after(Event.EVALUATE).after(Event.FAIL)
    with pytest.raises(StateError, match=r"transaction 7 is the first of this replica.* empty storage"):
        failed.after(Event.SKIP)
    with pytest.raises(StateError, match="transaction 7 is the first of this replica"):
        recorded(6, [(Event.STEP, 7), (Event.SKIP, 7)], 7)
    assert recorded(7, [(Event.STEP, 8), (Event.SKIP, 8)], 7).last == 8


def test_only_a_client_rolls_back() -> None:
    failed = Machine(3).after(Event.STEP).after(Event.EVALUATE).after(Event.FAIL)
    with pytest.raises(StateError, match="no client opened transaction 4, so it cannot be rolled back"):
        failed.after(Event.ROLL_BACK)
    assert failed.after(Event.SKIP).last == 4


@pytest.mark.parametrize("number", [2, 5])
def test_outputs_are_given_no_transaction_twice(number: int) -> None:
    machine = Machine(5).output(5)
    with pytest.raises(StateError, match=f"transaction {number} was to be delivered after transaction 5"):
        machine.output(number)


class Crashes(RuleBasedStateMachine):
    """Random events, allowed and not, and crashes between any two of them.

    The model knows who opened a transaction and how far it came, and says in its own words what may follow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(-1)
        self.saved = -1  # the transaction of the last checkpoint
        self.journal: list[tuple[Event, int]] = []  # since then
        self.opened_by: str | None = None
        self.phase = "gathers"
        self.ended: list[int] = []
        self.delivered: list[int] = []  # what an output has, which outlives the process
        self.unsynced = False

    @initialize()
    def run_the_initial_transaction(self) -> None:
        for event in (Event.STEP, Event.EVALUATE, Event.COMMIT, Event.DELIVER):
            self.happens(event)

    @property
    def number(self) -> int:
        return len(self.ended)

    def may(self, event: Event) -> bool:
        match event:
            case Event.BEGIN | Event.CHECKPOINT:
                return self.opened_by is None
            case Event.STEP:
                return self.opened_by is None or (self.opened_by == "client" and self.phase == "gathers")
            case Event.EVALUATE:
                return self.opened_by is not None and self.phase in ("gathers", "failed")
            case Event.COMMIT | Event.FAIL:
                return self.phase == "runs"
            case Event.DELIVER:
                return self.phase == "is committed"
            case Event.ROLL_BACK:
                return self.opened_by == "client" and self.phase in ("gathers", "failed")
            case Event.SKIP:
                found = self.phase == "failed" or (self.opened_by == "engine" and self.phase == "gathers")
                return found and self.number > 0

    @rule(event=st.sampled_from(Event), changes=st.booleans())
    def anything(self, event: Event, changes: bool) -> None:
        if self.may(event):
            self.happens(event, changes=changes)
            return
        with pytest.raises(StateError) as caught:
            self.machine.after(event)
        _assert_readable(str(caught.value), self.number)

    @rule(data=st.data(), changes=st.booleans())
    def something_allowed(self, data: st.DataObject, changes: bool) -> None:
        self.happens(data.draw(st.sampled_from([e for e in Event if self.may(e)])), changes=changes)

    def happens(self, event: Event, *, changes: bool = True) -> None:
        number = self.number
        if event is Event.DELIVER and changes:
            self.machine = self.machine.output(number)
            if number > max(self.delivered, default=-1):  # an output that has it already leaves it out
                self.delivered.append(number)
        self.machine = self.machine.after(event)
        self.unsynced = event in JOURNALED
        if self.unsynced:
            self.journal.append((event, number))
        match event:
            case Event.BEGIN:
                self.opened_by = "client"
            case Event.STEP:
                self.opened_by = self.opened_by or "engine"
            case Event.EVALUATE:
                self.phase = "runs"
            case Event.COMMIT:
                self.phase = "is committed"
            case Event.FAIL:
                self.phase = "failed"
            case Event.DELIVER | Event.ROLL_BACK | Event.SKIP:
                self.end()
            case Event.CHECKPOINT:
                self.saved, self.journal = number - 1, []

    def end(self) -> None:
        self.ended.append(self.number)
        self.opened_by, self.phase = None, "gathers"

    @rule(power=st.booleans(), replayed=st.integers(0, 99))
    def crash(self, power: bool, replayed: int) -> None:
        """Only the journal is left; a power cut takes its last record too if nothing had followed from it."""
        if power and self.unsynced:
            self.lose(*self.journal.pop())
        elif self.phase == "is committed":
            self.end()
        self.phase = "gathers"
        self.unsynced = False
        machine = recorded(self.saved, self.journal)
        self.replay(machine, replayed)
        machine = replace(machine, delivered=max(self.committed, default=-1))

        if self.opened_by == "client":
            assert machine.state is State.OPEN, "it must not take effect by itself"
            assert machine.takes_input
        elif self.opened_by == "engine":
            assert machine.state is State.STEPPED, "it is to be completed, as it was"
            assert not machine.takes_input
            assert machine.after(Event.EVALUATE).after(Event.COMMIT).after(Event.DELIVER).last == self.number
        else:
            assert machine.state is State.READY
        self.machine = machine

    def lose(self, event: Event, number: int) -> None:
        """The model forgets the last event."""
        if event in (Event.ROLL_BACK, Event.SKIP):
            assert self.ended.pop() == number
            self.opened_by = "client" if (Event.BEGIN, number) in self.journal else "engine"
        elif event is Event.BEGIN or (event is Event.STEP and self.opened_by == "engine"):
            self.opened_by = None

    @property
    def committed(self) -> list[int]:
        return [number for event, number in self.journal if event is Event.COMMIT]

    def replay(self, machine: Machine, most: int) -> None:
        """Run again what was recorded; it may be cut short by the next crash, and nothing is lost by that."""
        running = Machine(self.saved, replaying=True)
        for number in self.committed[:most]:
            assert not running.takes_input
            for event in Event:
                with pytest.raises(StateError, match="is being replayed"):
                    running.after(event)
            running = running.output(number)
            if number > max(self.delivered, default=-1):
                self.delivered.append(number)
            running = replace(running, last=number)
        assert running.last <= machine.last

    @invariant()
    def one_is_open_at_a_time_and_it_is_the_next(self) -> None:
        assert self.machine.number == self.number
        assert (self.machine.state is State.READY) == (self.opened_by is None)
        assert self.machine.client == (self.opened_by == "client")

    @invariant()
    def numbers_are_contiguous(self) -> None:
        assert self.ended == list(range(self.machine.last + 1))

    @invariant()
    def a_checkpoint_is_between_transactions(self) -> None:
        assert self.saved <= self.machine.last
        assert all(number > self.saved for _, number in self.journal)

    @invariant()
    def outputs_have_increasing_numbers_of_what_was_committed(self) -> None:
        assert all(before < after for before, after in itertools.pairwise(self.delivered))
        assert self.machine.delivered < self.number
        with pytest.raises(StateError, match="was to be delivered after"):
            self.machine.output(self.machine.delivered)

    @invariant()
    def input_waits_while_a_transaction_ends(self) -> None:
        assert self.machine.takes_input == (
            self.opened_by is None or (self.opened_by == "client" and self.phase == "gathers")
        )

    @invariant()
    def the_journal_can_be_read_at_any_time(self) -> None:
        assert recorded(self.saved, self.journal).number in (self.number, self.number + 1)


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
