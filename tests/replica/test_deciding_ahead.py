"""Rows that clients sent to a slow replica are in a transaction soon, and in one only, whatever fails."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ShardError
from penstock.replica import binding as module
from penstock.replica.binding import Binding
from penstock.replica.computed import Computed
from penstock.replica.decision import Decision
from penstock.shard.keeping import Keeper
from penstock.shard.stores.place import Place, PlaceConfig
from tests.replica.test_binding import AT, joined, plain, read, sent
from tests.shard.stores import Memory, Unreliable


@pytest.fixture
def place() -> Place:
    memory = Memory()
    return Place(memory, memory)


def test_it_decides_after_all_that_others_decided_on(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    for number in range(200):
        a.decide(number, [read(number)], AT)
    assert b.decide(0, [sent(1)], AT).mine is False
    assert b.propose([sent(1), sent(2)], AT) == 200
    assert plain(a.decided(200)) == [("api", [{"id": 1}, {"id": 2}], None)]
    assert a.decide(201, [read(201)], AT).mine
    for number in range(1, 200):
        assert plain(b.decided(number))[0][2] == {"0": number}
    found = b.decided(200)
    assert plain(found) == [("api", [{"id": 1}, {"id": 2}], None)]
    assert found is not None
    assert not found.mine, "what was to be in this one is something else"
    assert plain(b.decided(201))[0][2] == {"0": 201}
    assert b.decide(202, [sent(3)], AT).mine
    rows = {row["kind"]: row["content"] for row in a._shard.snapshot(201).to_pylist()}
    assert rows["position"] == '{"0": 201}'


def test_what_was_decided_ahead_is_found_after_a_restart(place: Place) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    for number in range(5):
        a.decide(number, [read(number)], AT)
    assert b.propose([sent(7)], AT) == 5
    b.close()
    again = joined(place, "b", last=-1)
    for number in range(5):
        assert plain(again.decided(number))[0][2] == {"0": number}
    assert plain(again.decided(5)) == [("api", [{"id": 7}], None)]


def test_much_that_is_read_ahead_takes_little_room(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 10)
    a, b = joined(place, "a"), joined(place, "b")
    for number in range(300):
        a.decide(number, [read(number)], AT)
    assert b.propose([sent(1)], AT) == 300
    assert len(b._read) < 100
    for number in range(300):
        assert plain(b.decided(number))[0][2] == {"0": number}
    assert plain(b.decided(300)) == [("api", [{"id": 1}], None)]


def test_an_attempt_whose_end_is_not_known_counts_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = joined(place, "a"), joined(place, "b")
    for number in range(3):
        a.decide(number, [], AT)
    append = b._writer.compare_and_append  # type: ignore[union-attr]

    def lost(*given: Any) -> Any:
        append(*given)
        raise ShardError("the answer was lost", passing=True)

    monkeypatch.setattr(b._writer, "compare_and_append", lost)
    with pytest.raises(ShardError):
        b.propose([sent(1)], AT)
    monkeypatch.undo()
    a.decided(3)
    a.decide(4, [read(1)], AT)
    assert b.propose([sent(1)], AT) == 3
    assert b.propose([sent(2)], AT) == 5


def test_one_that_is_always_too_late_is_given_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others decide all the time, and it takes this one much longer to do so."""
    monkeypatch.setattr(module, "WAY_SECONDS", 30.0)  # this machine may be busy
    stop = threading.Event()
    a, b, c = (joined(PlaceConfig(str(tmp_path)).opened(), name) for name in "abc")
    fast, slow = [a, c], b

    def load(binding: Binding) -> None:
        number = 0
        while not stop.is_set():
            binding.decide(number, [read(number)], AT)
            number += 1
            time.sleep(0.02)  # runs it

    append = slow._writer.compare_and_append  # type: ignore[union-attr]

    def slowly(*given: Any) -> Any:
        time.sleep(0.3)
        return append(*given)

    monkeypatch.setattr(slow._writer, "compare_and_append", slowly)
    threads = [threading.Thread(target=load, args=[binding]) for binding in fast]
    for thread in threads:
        thread.start()
    while slow.refresh().upper == 0:
        time.sleep(0.01)
    try:
        numbers = [slow.propose([sent(value)], AT) for value in range(3)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert None not in numbers
    asking = [writer for writer in slow.refresh().writers.values() if writer.asks is not None]
    assert asking == [], "it asks for nothing any more"
    for binding in (a, b, c):
        binding.close()


def test_one_that_asks_and_does_nothing_is_waited_for_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAY_SECONDS", 0.5)
    a, b = joined(place, "a"), joined(place, "b")
    a.decide(0, [], AT)
    b._writer.ask()  # type: ignore[union-attr]
    began = time.monotonic()
    assert a.decide(1, [], AT).mine
    assert time.monotonic() - began >= 0.5
    silent = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waits again"))
    monkeypatch.setattr(module, "time", silent)
    for number in range(2, 5):
        assert a.decide(number, [], AT).mine


def test_one_whose_generation_has_not_decided_does_not_decide_ahead(place: Place) -> None:
    a = joined(place, "a")
    a.decide(0, [], AT)
    new = Binding(place, "shop", lease=60)
    new.generation = 1
    new.join("n", "n", -1, Computed("q"))
    assert new.propose([sent(1)], AT) is None
    assert a.refresh().upper == 1


class Run:
    """Replicas on a store that fails, by seed: each sends rows, decides, and goes by what was decided, also
    between any two calls of the store that another one makes."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.memory = Memory()
        self._busy: list[int] = []
        self._store = Unreliable(self.memory, self._chance, self._meanwhile)
        self._store.reliable = True
        self.bindings = [self._joined(name, -1) for name in "abc"]
        self.next = [0, 0, 0]
        self.seen: list[dict[int, Any]] = [{}, {}, {}]
        self._given = 0
        self.sent: Counter[int] = Counter()

    def _joined(self, name: str, last: int) -> Binding:
        found = Binding(Place(self._store, self._store), "shop", lease=60)
        found.join(name, name, last, Computed("p"))
        assert found._keeper is not None
        found._keeper.stop()  # nothing happens by itself
        found._shard.machine._patience = 0.0
        found.take_part(True)
        assert found._keeper is not None
        found._keeper.stop()
        return found

    def _meanwhile(self) -> None:
        if len(self._busy) < 3 and self._chance.random() < 0.05:
            self.step()

    def step(self) -> None:
        which = self._chance.choice([n for n in range(3) if n not in self._busy])
        self._busy.append(which)
        self._act(which)
        self._busy.remove(which)

    def _act(self, which: int) -> None:
        binding = self.bindings[which]
        match self._chance.randrange(6):
            case 0 | 1:
                rows = self._rows()
                if self._patiently(lambda: binding.propose([rows], AT)) is None:
                    self._ungiven(rows)
            case 2:
                rows = self._rows()
                decision = self._patiently(lambda: binding.decide(self.next[which], [rows], AT))
                if not decision.mine:
                    self._ungiven(rows)
                self._went_by(which, decision)
            case 3:
                with suppress(ShardError):
                    Keeper(binding._shard, binding._writer).merge()
            case _:
                decision = self._patiently(lambda: binding.decided(self.next[which]))
                if decision is not None:
                    self._went_by(which, decision)

    def _patiently(self, act: Any) -> Any:
        """As transactions do: the same call again, until it is known what came of it."""
        self._store.reliable = False
        try:
            while True:
                try:
                    return act()
                except ShardError as error:
                    if not error.passing:
                        raise
                    self._store.reliable = False
        finally:
            self._store.reliable = len(self._busy) == 1

    def _rows(self) -> Any:
        self._given += 1
        self.sent[self._given] = 1
        return sent(self._given)

    def _ungiven(self, rows: Any) -> None:
        del self.sent[rows.data.column("id")[0].as_py()]

    def _went_by(self, which: int, decision: Decision) -> None:
        assert decision.number == self.next[which]
        self.seen[which][decision.number] = plain(decision)
        self.next[which] += 1

    def end(self) -> None:
        self._store.settle()
        for which, binding in enumerate(self.bindings):
            while (decision := binding.decided(self.next[which])) is not None:
                self._went_by(which, decision)


@pytest.mark.parametrize("seed", range(30))
def test_every_row_is_in_one_transaction(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAY_SECONDS", 0.2)
    run = Run(seed)
    for _ in range(60):
        run.step()
    run.end()
    assert run.seen[0] == run.seen[1] == run.seen[2]
    found = Counter(row["id"] for rows in run.seen[0].values() for _, data, _ in rows for row in data)
    assert found == run.sent
