"""From the last checkpoint to where the pipeline was when it ended, however it ended.

First a plan is made of what the journal says, which can be read before it is carried out; then it is carried
out. Transactions that every output has are run together, for nobody will see them one by one again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.connectors import log_order
from penstock.controller.machine import JOURNALED, Event, Machine, State, recorded
from penstock.engine.engine import Fed, Owner
from penstock.errors import ReplayError, StateError, StorageError
from penstock.journal.journal import Entry
from penstock.journal.record import Digest, Kind, Record

_EVENTS = frozenset(Kind(event) for event in JOURNALED)  # other records tell nothing about a transaction

_SPAN_ROWS = 1_000_000
_SPAN_SPLITS = 5_000


@dataclass
class Recorded:
    """One transaction as the journal has it."""

    number: int
    steps: list[Entry] = field(default_factory=list)
    end: Record | None = None

    @property
    def committed(self) -> bool:
        return self.end is not None and self.end.kind is Kind.COMMIT

    @property
    def changed(self) -> Sequence[str]:
        """The relations it changed."""
        found: Sequence[str] = self.end.note.get("changed", ()) if self.end is not None else ()
        return found

    @property
    def rows(self) -> int:
        return sum(f.split.rows or 0 for feds in inputs_of(self).values() for f in feds)


@dataclass(frozen=True)
class Replay:
    """Run recorded transactions again, as one."""

    transactions: Sequence[Recorded]

    @property
    def last(self) -> Recorded:
        return self.transactions[-1]

    @property
    def at(self) -> datetime:
        assert self.last.end is not None, "only transactions that were committed are replayed"
        return self.last.end.at

    def __str__(self) -> str:
        first, last = self.transactions[0].number, self.last.number
        return (
            f"replay transaction {last}"
            if first == last
            else f"replay transactions {first} to {last} together"
        )


@dataclass(frozen=True)
class Complete:
    """Finish a transaction that the engine opened and did not commit."""

    transaction: Recorded

    def __str__(self) -> str:
        return f"complete transaction {self.transaction.number}"


@dataclass(frozen=True)
class Reopen:
    """Leave a client's transaction open, for the client to commit or roll back."""

    transaction: Recorded

    def __str__(self) -> str:
        return f"leave transaction {self.transaction.number} open"


Stage = Replay | Complete | Reopen


@dataclass(frozen=True)
class Plan:
    """What recovery will do, and what is known when it is done."""

    machine: Machine
    stages: Sequence[Stage]
    positions: Mapping[str, Any]  # of the connectors, after the last transaction that ended
    paused: Mapping[str, bool]
    transactions: int
    rows: int


def joined(entries: Sequence[Entry], program: str) -> dict[str, int]:
    """The outputs that were given the rows of their views, as those of which transaction; what an output was
    given of another `program` says nothing about this one."""
    notes = [entry.record.note for entry in entries if entry.record.kind is Kind.JOIN]
    return {note["output"]: note["transaction"] for note in notes if note["program"] == program}


def plan(
    entries: Sequence[Entry],
    last: int,
    positions: Mapping[str, Any],
    has: Callable[[Recorded], bool],
    first: int = 0,
) -> Plan:
    """What to do about the records that follow transaction `last`.

    `positions` is where the connectors stood then; `has` tells whether no output lacks a transaction; `first`
    computes the views from nothing.
    """
    try:
        machine = recorded(last, _events(entries), first)
    except StateError as error:
        raise StorageError(f"{error}. Restore the storage directory from a copy.") from error
    found = _grouped(entries)
    now = dict(positions)
    for transaction in found:
        if transaction.end is not None and transaction.end.kind is not Kind.ROLL_BACK:
            now.update(positions_of(transaction.steps))
    committed = [transaction for transaction in found if transaction.committed]
    stages: list[Stage] = list(_spans(committed, has, first))
    if found and found[-1].end is None:
        stages.append(Reopen(found[-1]) if machine.state is State.OPEN else Complete(found[-1]))
    paused = {
        entry.record.note["connector"]: entry.record.note["paused"]
        for entry in entries
        if entry.record.kind is Kind.CONNECTOR
    }
    return Plan(machine, stages, now, paused, len(committed), sum(t.rows for t in committed))


def positions_of(steps: Sequence[Entry]) -> dict[str, Any]:
    """Where the connectors stood after some steps."""
    return {p.connector: p.position for e in steps for p in e.record.portions if p.position is not None}


def _events(entries: Sequence[Entry]) -> Iterator[tuple[Event, int]]:
    for entry in entries:
        if entry.record.kind in _EVENTS:
            yield Event(entry.record.kind), entry.record.transaction


def _grouped(entries: Sequence[Entry]) -> list[Recorded]:
    found: dict[int, Recorded] = {}
    for entry in entries:
        record = entry.record
        if record.kind not in _EVENTS:
            continue
        transaction = found.setdefault(record.transaction, Recorded(record.transaction))
        if record.kind is Kind.STEP:
            transaction.steps.append(entry)
        elif record.kind is not Kind.BEGIN:
            transaction.end = record
    return list(found.values())


def _spans(transactions: Sequence[Recorded], has: Callable[[Recorded], bool], first: int) -> Iterator[Replay]:
    """Neighbours that every output has form a span, up to a size that fits one evaluation."""
    span: list[Recorded] = []
    rows = splits = 0
    for transaction in transactions:
        size = transaction.rows
        parts = sum(len(feds) for feds in inputs_of(transaction).values())
        # The initial transaction computes views from nothing, which no other does.
        together = span and span[0].number > first and has(transaction) and has(span[-1])
        if not together or rows + size > _SPAN_ROWS or splits + parts > _SPAN_SPLITS:
            if span:
                yield Replay(span)
            span, rows, splits = [], 0, 0
        span.append(transaction)
        rows += size
        splits += parts
    if span:
        yield Replay(span)


def inputs_of(*transactions: Recorded) -> dict[str, list[Fed]]:
    """What went into transactions, by table, in the order of arrival."""
    inputs: dict[str, list[Fed]] = {}
    for transaction in transactions:
        own: dict[str, list[Fed]] = {}
        for step in transaction.steps:
            for portion in step.record.portions:
                owner = Owner(portion.connector, transaction.number)
                feds = own.setdefault(portion.table, [])
                feds.extend(Fed(split, owner) for split in step.splits(portion))
        for table, feds in own.items():
            inputs.setdefault(table, []).extend(_in_order(feds))
    return inputs


def _in_order(feds: list[Fed]) -> list[Fed]:
    """Ranges of a log take effect in the order of the log: so it does not matter into which steps of the
    transaction they were cut. Everything else stays where it is."""
    places: dict[Owner, list[int]] = {}
    for index, fed in enumerate(feds):
        if fed.owner is not None and log_order(fed.split) is not None:
            places.setdefault(fed.owner, []).append(index)
    ordered = list(feds)
    for indices in places.values():
        ranked = sorted((feds[index] for index in indices), key=lambda fed: log_order(fed.split) or ())
        for index, fed in zip(indices, ranked, strict=True):
            ordered[index] = fed
    return ordered


def digests_of(result: Mapping[Owner, tuple[int, int]], number: int) -> dict[str, Digest]:
    """What each connector gave to a transaction."""
    return {owner.connector: Digest(*found) for owner, found in result.items() if owner.transaction == number}


def fewer(then: Mapping[str, Digest], now: Mapping[str, Digest]) -> list[str]:
    """The connectors that give a transaction fewer rows now than they did.

    >>> fewer({"orders": Digest(2, 5), "users": Digest(1, 3)}, {"orders": Digest(2, 6)})
    ['users']
    """
    return [name for name, was in then.items() if name not in now or now[name].rows < was.rows]


def verify(
    number: int, then: Mapping[str, Digest], now: Mapping[str, Digest], *, gaps: Collection[str] = ()
) -> None:
    """Compare what each connector gave to a transaction then with what it gave in the replay; those with
    `gaps` could not give everything again, and may.

    >>> verify(7, {"orders": Digest(2, 5)}, {"orders": Digest(2, 5)})
    """
    for connector, was in then.items():
        if connector in gaps:
            continue
        found = now.get(connector)
        if found is None:
            raise _mismatch(number, f"the connector {connector} gave it {was}, and gives nothing now")
        if found.rows != was.rows:
            raise _mismatch(
                number, f"the connector {connector} gave it {was.rows} rows, and gives {found.rows} now"
            )
        if found.hash != was.hash:
            raise _mismatch(
                number,
                f"the {was.rows} rows of the connector {connector} had the hash {was.hash:016x}, and have"
                f" {found.hash:016x} now",
            )
    for connector, found in now.items():
        if connector not in then:
            raise _mismatch(number, f"the connector {connector} gave it nothing, and gives {found} now")


def _mismatch(number: int, what: str) -> ReplayError:
    return ReplayError(
        f"transaction {number} cannot be replayed: {what}. The file or topic that it reads may have been"
        " changed since, or the source is not deterministic. Restore what it read, or start with an empty"
        " storage directory."
    )
