"""Several replicas agree on what each transaction is made of, whoever is faster, and whatever is lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors import Split
from penstock.errors import ShardError, StateError, StorageError
from penstock.journal.arrival import Arrival
from penstock.replica.binding import Binding
from penstock.replica.computed import Computed
from penstock.replica.decision import Decision
from penstock.shard.keeping import Keeper
from penstock.shard.stores.place import Place
from tests.shard.stores import Memory

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def place() -> Place:
    memory = Memory()
    return Place(memory, memory)


def joined(place: Place, member: str, last: int = -1, program: str = "p") -> Binding:
    found = Binding(place, "shop", lease=60)
    found.join(member, member, last, Computed(program))
    found.take_part(True)
    return found


def read(upto: int, connector: str = "kafka") -> Arrival:
    return Arrival("orders", (Split("kafka", {"to": upto}, 10),), connector, {"0": upto})


def sent(*values: int) -> Arrival:
    return Arrival("orders", pa.table({"id": values}))


def plain(decision: Decision | None) -> Any:
    assert decision is not None
    return [
        (a.connector, a.data.to_pylist() if isinstance(a.data, pa.Table) else list(a.data), a.position)
        for a in decision.arrivals
    ]


def test_the_first_decides_and_the_others_adopt_it(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    ours = a.decide(0, [read(7)], AT)
    assert ours.mine
    theirs = b.decide(0, [read(5)], datetime.now(UTC))
    assert not theirs.mine
    assert theirs.at == AT
    assert plain(theirs) == plain(ours) == [("kafka", [Split("kafka", {"to": 7}, 10)], {"0": 7})]
    assert b.decide(1, [read(9)], AT).mine
    assert plain(a.decided(1)) == [("kafka", [Split("kafka", {"to": 9}, 10)], {"0": 9})]
    assert a.decided(2) is None


def test_rows_that_clients_sent_go_with_the_decision(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    a.decide(0, [sent(1, 2), read(3), sent(3)], AT)
    assert plain(b.decided(0)) == [
        ("api", [{"id": 1}, {"id": 2}, {"id": 3}], None),
        ("kafka", [Split("kafka", {"to": 3}, 10)], {"0": 3}),
    ]


def test_rows_of_those_who_lost_are_gone(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    a.decide(0, [sent(1)], AT)
    b.decide(0, [sent(2)], AT)
    assert len(place.blobs.keys("shop/binding/rows")) == 1
    for binding in (a, b):
        binding.decide(1, [sent(3)], AT)
        binding.release(1)
    Keeper(a._shard, a._writer).keep()  # moves `since` on
    a.refresh()
    a.clean()
    assert place.blobs.keys("shop/binding/rows") == []


@pytest.mark.parametrize("ahead", [False, True])
def test_rows_stay_if_they_counted_and_their_writer_was_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """It was stopped before it got the answer, and so many others came and went that nobody knows it."""
    monkeypatch.setattr("penstock.shard.state.MAX_GONE", 1)
    a, b = joined(place, "a"), joined(place, "b")
    a.decide(0, [], AT)
    before = b.member
    create = place.log.create

    def create_and_stop(name: str, number: int, data: bytes) -> bool:
        monkeypatch.setattr(place.log, "create", create)
        assert create(name, number, data)
        a._shard.machine.update(lambda state, _: state.without_writer(before).without_writer(a.member))
        assert before not in a.state.writers
        raise ShardError("no answer", passing=True)

    b.decided(0)
    monkeypatch.setattr(place.log, "create", create_and_stop)
    if ahead:
        assert b.propose([sent(1)], AT) == 1
    else:
        assert b.decide(1, [sent(1)], AT).mine
    assert plain(a.decided(1)) == [("api", [{"id": 1}], None)]


def test_a_restart_goes_on_where_it_was(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    for number in range(20):
        (a if number % 2 else b).decide(number, [read(number), read(number, f"other {number % 3}")], AT)
        (b if number % 2 else a).decided(number)
    a.close()
    again = joined(place, "a", last=12)
    for number in range(13, 20):
        assert plain(again.decided(number))[0][2] == {"0": number}
    assert again.decide(20, [read(20)], AT).mine
    assert plain(b.decided(20))[0][2] == {"0": 20}
    rows = [row for row in b._shard.snapshot(20).to_pylist() if row["kind"] == "position"]
    assert {row["name"]: row["content"] for row in rows} == {
        "kafka": '{"0": 20}',
        "other 0": '{"0": 18}',
        "other 1": '{"0": 19}',
        "other 2": '{"0": 17}',
    }


def test_what_all_have_takes_no_room(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    keeper = Keeper(a._shard, a._writer)
    for number in range(400):
        a.decide(number, [read(number)], AT)
        b.decided(number)
        if number % 10 == 9:
            a.release(number)
            b.release(number - 1)
            keeper.keep()
    assert a.refresh().since == 398
    assert sum(batch.rows for batch in a.state.batches) < 300, "those that were not merged again yet"
    assert len(a._shard.snapshot(399).to_pylist()) == 3


def test_a_newcomer_to_a_group_that_has_forgotten_is_refused(place: Place) -> None:
    a = joined(place, "a")
    for number in range(10):
        a.decide(number, [], AT)
    a.release(9)
    Keeper(a._shard, a._writer).keep()
    with pytest.raises(StorageError, match="does not know any more what transaction 0"):
        joined(place, "b")


def test_a_storage_of_another_group_is_refused(place: Place) -> None:
    with pytest.raises(StorageError, match="has decided on the transactions before 0"):
        joined(place, "a", last=3)


def test_another_program_is_refused(place: Place) -> None:
    joined(place, "a").decide(0, [], AT)
    with pytest.raises(StateError, match="run another program"):
        joined(place, "b", program="q")


def test_an_attempt_whose_end_is_not_known_is_known_again_as_ones_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = joined(place, "a")
    a.decide(0, [], AT)
    append = a._writer.compare_and_append  # type: ignore[union-attr]

    def lost(*given: Any) -> Any:
        append(*given)
        raise ShardError("the answer was lost", passing=True)

    monkeypatch.setattr(a._writer, "compare_and_append", lost)
    with pytest.raises(ShardError):
        a.decide(1, [sent(1)], AT)
    monkeypatch.undo()
    found = a.decide(1, [sent(1)], AT)
    assert found.mine
    assert plain(found) == [("api", [{"id": 1}], None)]
