"""What recovery will do about what a journal says, and what it refuses to replay: no Spark, no files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors import Split
from penstock.controller import recovery
from penstock.controller.machine import State
from penstock.controller.recovery import (
    Complete,
    Plan,
    Recorded,
    Reopen,
    Replay,
    digests_of,
    inputs_of,
    plan,
    positions_of,
    verify,
)
from penstock.engine.engine import Fed, Owner
from penstock.errors import ReplayError, StorageError
from penstock.journal.journal import Entry
from penstock.journal.record import API, Digest, Kind, Portion, Record, Rows

BEGIN = datetime(2026, 5, 17, 12, tzinfo=UTC)


class Made:
    """Entries of a journal, written down in a few letters.

    `s` is a step, `b` a begin, `c` a commit, `r` a roll-back, `x` a skip; a blank separates transactions.
    """

    def __init__(self, text: str, first: int = 0, rows: int = 1, splits: int = 1) -> None:
        self.entries: list[Entry] = []
        kinds = {"s": Kind.STEP, "b": Kind.BEGIN, "c": Kind.COMMIT, "r": Kind.ROLL_BACK, "x": Kind.SKIP}
        for number, letters in enumerate(text.split(), first):
            for letter in letters:
                self.add(kinds[letter], number, rows, splits)

    def add(self, kind: Kind, number: int, rows: int = 1, splits: int = 1, **more: Any) -> None:
        at = BEGIN + timedelta(seconds=len(self.entries))
        portions: tuple[Portion, ...] = ()
        if kind is Kind.STEP:
            parts = tuple(Split("csv", {"part": n}, rows) for n in range(splits))
            portions = (Portion("in", "t", parts, position={"at": len(self.entries)}),)
        record = Record(kind, number, at, portions, **more)
        self.entries.append(Entry(len(self.entries), record, Path("/j/0.log"), 0))

    def plan(self, last: int = -1, has: Callable[[int], bool] = lambda _: False, positions: Any = ()) -> Plan:
        return plan(self.entries, last, dict(positions), has)


def _spans(made: Plan) -> list[list[int]]:
    return [[t.number for t in stage.transactions] for stage in made.stages if isinstance(stage, Replay)]


def _texts(made: Plan) -> list[str]:
    return [str(stage) for stage in made.stages]


# -- what is run together -----------------------------------------------------------------------


def test_an_empty_journal_needs_nothing() -> None:
    made = plan([], 7, {"in": 3}, lambda _: True)
    assert (made.stages, made.transactions, made.rows) == ([], 0, 0)
    assert (made.machine.last, made.machine.state) == (7, State.READY)
    assert (made.positions, made.paused) == ({"in": 3}, {})


def test_transactions_that_no_output_has_are_run_one_by_one() -> None:
    made = Made("sc sc sc", first=5).plan(4)
    assert _spans(made) == [[5], [6], [7]]
    assert _texts(made) == ["replay transaction 5", "replay transaction 6", "replay transaction 7"]


def test_transactions_that_every_output_has_are_run_together() -> None:
    made = Made("sc sc sc", first=5).plan(4, lambda _: True)
    assert _spans(made) == [[5, 6, 7]]
    assert _texts(made) == ["replay transactions 5 to 7 together"]
    (stage,) = made.stages
    assert isinstance(stage, Replay)
    assert stage.at == stage.last.end.at == BEGIN + timedelta(seconds=5)  # type: ignore[union-attr]


@pytest.mark.parametrize("delivered", range(3, 10))
def test_what_an_output_lacks_is_not_run_with_anything(delivered: int) -> None:
    made = Made("sc sc sc sc", first=5).plan(4, lambda transaction: transaction.number <= delivered)
    together = [n for n in range(5, 9) if n <= delivered]
    assert _spans(made) == [*([together] if together else []), *([n] for n in range(5, 9) if n > delivered)]


@pytest.mark.parametrize("has", list(itertools.product([True, False], repeat=5)))
def test_nothing_is_run_together_that_an_output_lacks(has: Sequence[bool]) -> None:
    made = Made("sc sc sc sc sc").plan(-1, lambda transaction: has[transaction.number])
    spans = _spans(made)
    assert list(itertools.chain(*spans)) == [0, 1, 2, 3, 4]
    for span in spans:
        assert len(span) == 1 or all(has[number] for number in span)
        assert span == [0] or 0 not in span
    for before, after in itertools.pairwise(spans):
        assert before == [0] or not (has[before[-1]] and has[after[0]]), "neighbours that all have are joined"


def test_the_initial_transaction_is_run_by_itself() -> None:
    assert _spans(Made("sc sc sc").plan(-1, lambda _: True)) == [[0], [1, 2]]


def test_a_span_has_a_size() -> None:
    rows = recovery._SPAN_ROWS // 3

    def spans(rows: int, splits: int = 1) -> list[list[int]]:
        return _spans(Made("sc " * 7, first=1, rows=rows, splits=splits).plan(0, lambda _: True))

    assert spans(rows) == [[1, 2, 3], [4, 5, 6], [7]]
    assert spans(rows + 1) == [[1, 2], [3, 4], [5, 6], [7]]
    assert spans(recovery._SPAN_ROWS) == [[n] for n in range(1, 8)]
    assert spans(recovery._SPAN_ROWS + 1) == [[n] for n in range(1, 8)], "a large one is run, too"
    parts = recovery._SPAN_SPLITS // 2
    assert spans(0, parts) == [[1, 2], [3, 4], [5, 6], [7]]
    assert spans(0, parts + 1) == [[n] for n in range(1, 8)]


def test_rows_that_nobody_counted_count_nothing() -> None:
    made = Made("")
    made.entries = [
        Entry(
            0, Record(Kind.STEP, 1, BEGIN, (Portion("in", "t", (Split("csv", {}, None),)),)), Path("/j"), 0
        ),
        Entry(1, Record(Kind.COMMIT, 1, BEGIN), Path("/j"), 0),
    ]
    found = made.plan(0)
    assert (found.transactions, found.rows) == (1, 0)


# -- what is left out ---------------------------------------------------------------------------


def test_what_took_no_effect_is_left_out() -> None:
    made = Made("sc bsr sx bsc bssx br sc", first=1).plan(0)
    assert _spans(made) == [[1], [4], [7]]
    assert (made.machine.last, made.machine.state) == (7, State.READY)
    assert (made.transactions, made.rows) == (3, 3)
    assert _spans(Made("sc bsr sc", first=1).plan(0, lambda _: True)) == [[1, 3]]


def test_positions_are_those_after_the_last_that_ended() -> None:
    assert Made("sc bssc", first=1).plan(0).positions == {"in": {"at": 4}}
    # A roll-back gives the input back; a skip does not.
    assert Made("sc bsr", first=1).plan(0).positions == {"in": {"at": 0}}
    assert Made("sc sx", first=1).plan(0).positions == {"in": {"at": 2}}
    assert Made("sc sx bsr", first=1).plan(0).positions == {"in": {"at": 2}}
    assert Made("sc bsr sx", first=1).plan(0).positions == {"in": {"at": 5}}
    # What has not ended may yet be rolled back.
    assert Made("sc bs", first=1).plan(0).positions == {"in": {"at": 0}}
    assert Made("sc s", first=1).plan(0).positions == {"in": {"at": 0}}


def test_positions_of_the_checkpoint_stay_where_nothing_came() -> None:
    made = Made("sc", first=1).plan(0, positions={"other": [1, 2], "in": {"at": -1}})
    assert made.positions == {"other": [1, 2], "in": {"at": 0}}
    assert Made("bsr", first=1).plan(0, positions={"in": "before"}).positions == {"in": "before"}


def test_the_last_position_of_each_connector_counts() -> None:
    steps = [
        Entry(n, Record(Kind.STEP, 1, BEGIN, portions), Path("/j"), 0)
        for n, portions in enumerate(
            [
                (Portion("a", "t", position=1), Portion("b", "t", position=0)),
                (Portion("a", "u", position=2), Portion(API, "t", rows=Rows(1))),
            ]
        )
    ]
    assert positions_of(steps) == {"a": 2, "b": 0}, "a position may be 0; rows of the API have none"


# -- the last transaction -----------------------------------------------------------------------


def test_a_transaction_of_the_engine_is_completed() -> None:
    made = Made("sc s", first=1).plan(0)
    assert _texts(made) == ["replay transaction 1", "complete transaction 2"]
    last = made.stages[-1]
    assert isinstance(last, Complete)
    assert (last.transaction.number, len(last.transaction.steps)) == (2, 1)
    assert (made.machine.state, made.machine.number, made.machine.client) == (State.STEPPED, 2, False)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_transaction_of_a_client_stays_open(steps: int) -> None:
    made = Made(f"sc b{'s' * steps}", first=1).plan(0, lambda _: True)
    assert _texts(made) == ["replay transaction 1", "leave transaction 2 open"]
    last = made.stages[-1]
    assert isinstance(last, Reopen)
    assert (last.transaction.number, len(last.transaction.steps)) == (2, steps)
    assert (made.machine.state, made.machine.number, made.machine.client) == (State.OPEN, 2, True)


def test_the_initial_transaction_is_completed() -> None:
    made = Made("s").plan()
    assert _texts(made) == ["complete transaction 0"]
    assert made.machine.number == 0


# -- records of something else ------------------------------------------------------------------


def test_connectors_are_paused_as_somebody_said_last() -> None:
    made = Made("sc", first=1)
    for connector, paused in [("in", True), ("other", True), ("in", False)]:
        made.add(Kind.CONNECTOR, 2, note={"connector": connector, "paused": paused})
    made.add(Kind.STEP, 2)
    made.add(Kind.CONNECTOR, 2, note={"connector": "third", "paused": True})
    found = made.plan(0)
    assert found.paused == {"in": False, "other": True, "third": True}
    assert _texts(found) == ["replay transaction 1", "complete transaction 2"]


# -- journals that make no sense ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "error"),
    [
        ("sc", 2, "a step of transaction 2 where 1 was due"),
        ("sc", 0, "a step of transaction 0 where 1 was due"),
        ("c", 1, "a commit of transaction 1, which is ready"),
        ("ss", 1, "a step of transaction 1, which is stepped"),
        ("bb", 1, "a begin of transaction 1, which is open"),
        ("sr", 1, "a roll-back of transaction 1, which is stepped"),
        ("scc", 1, "a commit of transaction 1 where 2 was due"),
        ("s sc", 1, "a step of transaction 2 where 1 was due"),
    ],
)
def test_a_journal_that_makes_no_sense_is_refused(text: str, first: int, error: str) -> None:
    with pytest.raises(StorageError, match=f"the journal has {error}. Restore the storage directory"):
        Made(text, first=first).plan(0)


# -- what went in -------------------------------------------------------------------------------


def test_inputs_are_in_the_order_of_arrival_and_know_their_owner() -> None:
    def step(number: int, *portions: Portion) -> Entry:
        return Entry(0, Record(Kind.STEP, number, BEGIN, portions), Path("/j/0.log"), 100)

    one, two, three = (Split("csv", {"part": n}) for n in range(3))
    first = Recorded(1, [step(1, Portion("a", "t", (one, two)), Portion("b", "u", (three,)))])
    second = Recorded(
        2,
        [
            step(2, Portion(API, "t", rows=Rows(2, 10, 30))),
            step(2, Portion("a", "t", (three,)), Portion(API, "u", rows=Rows(9, file="0-1.arrow"))),
        ],
    )
    found = inputs_of(first, second)
    assert list(found) == ["t", "u"]
    stream = Split("arrow_stream", {"path": "/j/0.log", "offset": 110, "size": 30}, 2)
    assert [fed.owner for fed in found["t"]] == [
        Owner("a", 1),
        Owner("a", 1),
        Owner(API, 2),
        Owner("a", 2),
    ]
    assert [fed.split.payload for fed in found["t"]] == [s.payload for s in (one, two, stream, three)]
    assert found["u"][0] == Fed(three, Owner("b", 1))
    assert (found["u"][1].split.payload["path"], found["u"][1].split.rows) == ("/j/0-1.arrow", 9)
    assert second.rows == 2 + 9


def test_digests_are_those_of_the_transaction() -> None:
    result = {Owner("a", 1): (2, 5), Owner("b", 1): (1, 7), Owner("a", 2): (3, 9)}
    assert digests_of(result, 1) == {"a": Digest(2, 5), "b": Digest(1, 7)}
    assert digests_of(result, 3) == {}


# -- verify -------------------------------------------------------------------------------------


def test_the_same_is_accepted() -> None:
    digests = {"a": Digest(2, 5), "b": Digest(0, 0)}
    verify(7, digests, dict(reversed(digests.items())))
    verify(7, {}, {})


def test_digests_add_up_in_any_order() -> None:
    parts = [Digest(1, (1 << 64) - 1), Digest(2, 3), Digest(3, 1 << 63)]
    sums = {sum(order, Digest()) for order in itertools.permutations(parts)}
    assert sums == {Digest(6, ((1 << 63) + 2))}


@pytest.mark.parametrize(
    ("then", "now", "what"),
    [
        (
            {"ok": Digest(1, 1), "orders": Digest(2, 0xAB)},
            {"ok": Digest(1, 1)},
            "the connector orders gave it 2 rows with hash 00000000000000ab, and gives nothing now",
        ),
        (
            {"ok": Digest(1, 1)},
            {"ok": Digest(1, 1), "orders": Digest(3, 0xCD)},
            "the connector orders gave it nothing, and gives 3 rows with hash 00000000000000cd now",
        ),
        (
            {"ok": Digest(1, 1), "orders": Digest(2, 0xAB)},
            {"ok": Digest(1, 1), "orders": Digest(3, 0xAB)},
            "the connector orders gave it 2 rows, and gives 3 now",
        ),
        (
            {"ok": Digest(1, 1), "orders": Digest(2, 0xAB)},
            {"ok": Digest(1, 1), "orders": Digest(2, 0xCD)},
            "the 2 rows of the connector orders had the hash 00000000000000ab, and have 00000000000000cd now",
        ),
    ],
    ids=["missing", "not in the record", "count", "hash"],
)
def test_a_difference_is_named(then: dict[str, Digest], now: dict[str, Digest], what: str) -> None:
    with pytest.raises(ReplayError) as caught:
        verify(17, then, now)
    assert str(caught.value) == (
        f"transaction 17 cannot be replayed: {what}. The file or topic that it reads may have been changed"
        " since, or the source is not deterministic. Restore what it read, or start with an empty storage"
        " directory."
    )
    assert caught.value.code == "REPLAY_MISMATCH"
