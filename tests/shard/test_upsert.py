"""The upsert operator, driven by hand through every order in which things can happen to it.

A world has one writer under test, peers that append what is right, and a shard. From every state of the world
each possible next event is tried, so every ordering of input, seals, peers, own appends and feedback occurs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from penstock.errors import DivergedError
from penstock.shard import upsert
from penstock.shard.upsert import Emission, Rule, Upsert

Rows = tuple[tuple[str, str | None], ...]
Changes = tuple[tuple[str, str, int], ...]

SCRIPTS: tuple[tuple[Rows, ...], ...] = (
    ((("a", "1"),), (("a", "2"), ("b", "1")), (("a", None),)),
    ((("a", "1"), ("a", "2")), (), (("a", "2"),), (("b", "1"), ("a", None))),
    ((("a", None),), (("a", "1"),), (("a", None),), (("a", "1"),)),
    (
        (),
        (),
        (("a", "1"), ("b", "2"), ("c", None)),
    ),
)
"""What the input brings at times 0, 1, 2, ..."""


def states_of(script: tuple[Rows, ...]) -> list[dict[str, str]]:
    """What the shard must hold before each time."""
    found: list[dict[str, str]] = [{}]
    for rows in script:
        now = dict(found[-1])
        for key, row in rows:
            now.pop(key, None)
            if row is not None:
                now[key] = row
        found.append(now)
    return found


def difference(before: dict[str, str], after: dict[str, str]) -> Changes:
    gone = [(key, row, -1) for key, row in before.items() if after.get(key) != row]
    come = [(key, row, 1) for key, row in after.items() if before.get(key) != row]
    return (*gone, *come)


@dataclass(frozen=True)
class World:
    """How far everything is. The operator is made anew from it, by the events that led there."""

    events: tuple[tuple[str, int], ...] = ()
    buffered: frozenset[int] = frozenset()
    sealed: int = 0
    upper: int = 0  # of the shard
    fed: int = 0  # the upper that the writer was told
    asked: Emission[str, str] | None = None
    """What the writer is appending; the shard has not answered."""


class Play:
    """One script, one start, all worlds."""

    def __init__(self, script: tuple[Rows, ...], resume: int = 0) -> None:
        self.script = script
        self.end = len(script)
        self.states = states_of(script)
        self.resume = resume

    def between(self, lower: int, upper: int) -> Changes:
        return difference(self.states[lower], self.states[upper])

    def operator(self, world: World) -> Upsert[str, str]:
        made: Upsert[str, str] = Upsert(self.resume, self.states[self.resume])
        for event, time in world.events:
            if event == "buffer":
                made.buffer(time, self.script[time])
            elif event == "seal":
                made.seal(time)
            elif event == "feedback":
                made.feedback(time, self.between(made.upper, time))
        return made

    def after(self, world: World) -> Iterator[World]:
        """The worlds that can come next, by one event each."""

        def event(name: str, time: int, **changes: object) -> World:
            return replace(world, events=(*world.events, (name, time)), **changes)

        for time in range(world.sealed, self.end):
            if time not in world.buffered:
                yield event("buffer", time, buffered=world.buffered | {time})
        for time in range(world.sealed + 1, self.end + 1):
            if all(t in world.buffered for t in range(world.sealed, time)):
                yield event("seal", time, sealed=time)
        for time in range(world.upper + 1, self.end + 1):
            yield event("peer", time, upper=time)
        for time in range(world.fed + 1, world.upper + 1):
            yield event("feedback", time, fed=time)
        if world.asked is None and (emission := self.operator(world).emission()) is not None:
            yield event("ask", emission.lower, asked=emission)
        if world.asked is not None:
            won = world.asked.lower == world.upper
            yield event(
                "append" if won else "lose",
                world.asked.upper,
                asked=None,
                upper=world.asked.upper if won else world.upper,
            )

    def check(self, world: World) -> None:
        operator = self.operator(world)
        assert operator.upper == world.fed <= world.upper, (
            "the upper went back, or was taken for further than it is"
        )
        assert operator.state == self.states[world.fed], "the state is not what the shard holds"
        assert operator.frontier >= min(operator.input_frontier, operator.upper), (
            "it does not get past the upper"
        )
        emission = operator.emission()
        if emission is not None:
            assert emission.lower == operator.upper
            assert emission.upper <= operator.input_frontier, "it speaks of what it does not know"
            expected = self.between(emission.lower, emission.upper)
            assert sorted(emission.changes) == sorted(expected), "it appends what is not so"
        if world.asked is not None and world.asked.lower == world.upper:
            now = dict(self.states[world.upper])
            for key, row, weight in world.asked.changes:
                assert (now.pop(key) if weight < 0 else now.setdefault(key, row)) == row, (
                    "two rows of one key"
                )

    def run(self) -> int:
        """Visit every world; returns how many there are."""
        first = World(upper=self.resume, fed=self.resume, buffered=frozenset(), sealed=0)
        seen: set[object] = set()
        left = [first]
        while left:
            world = left.pop()
            # Two orders of events that leave everything the same have the same future.
            operator = self.operator(world)
            inside = (
                operator.frontier,
                operator.held,
                operator.input_frontier,
                tuple(sorted(operator._buffer)),
            )
            mark = (replace(world, events=()), inside)
            if mark in seen:
                continue
            seen.add(mark)
            self.check(world)
            following = list(self.after(world))
            if not following:
                assert world.upper == world.fed == self.end
                assert operator.frontier == self.end, "it waits for ever"
                assert operator.held == 0
            left += following
        return len(seen)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("resume", [0, 1, 2])
def test_every_order_of_events(script: tuple[Rows, ...], resume: int) -> None:
    assert Play(script, resume).run() > 40


def test_with_two_cases_instead_of_three_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is before the upper was once held, as what is after it: then it is held for ever."""
    monkeypatch.setattr(upsert, "rule", lambda time, upper: Rule.EMIT if time == upper else Rule.HOLD)
    with pytest.raises(AssertionError):
        Play(SCRIPTS[0]).run()


def test_emitting_what_a_peer_appended_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "rule", lambda time, upper: Rule.EMIT if time <= upper else Rule.HOLD)
    with pytest.raises(AssertionError):
        Play(SCRIPTS[0]).run()


@pytest.mark.parametrize("first", ["feedback", "input"])
def test_a_peer_was_faster_than_the_input(first: str) -> None:
    operator: Upsert[str, str] = Upsert()
    if first == "feedback":
        operator.feedback(10, [("a", "peer", 1)])
    operator.buffer(5, [("a", "mine")])
    operator.buffer(7, [("b", "mine")])
    if first == "input":
        operator.feedback(10, [("a", "peer", 1)])
    operator.seal(11)
    assert operator.emission() == Emission(10, 11)
    assert (operator.frontier, operator.held) == (11, 0)
    assert operator.state == {"a": "peer"}


def test_input_that_is_behind_the_upper_for_a_while() -> None:
    operator: Upsert[str, str] = Upsert()
    operator.buffer(3, [("a", "1")])
    operator.feedback(9, [("a", "1", 1)])
    assert (operator.frontier, operator.emission()) == (0, None)
    operator.seal(6)
    assert (operator.frontier, operator.emission()) == (6, None)
    operator.buffer(9, [("a", "2")])
    assert operator.emission() is None, "more of time 9 may come"
    operator.seal(10)
    assert operator.emission() == Emission(9, 10, (("a", "1", -1), ("a", "2", 1)))


def test_what_lies_between_is_empty() -> None:
    operator: Upsert[str, str] = Upsert(2, {"a": "1"})
    operator.buffer(1, [("a", "old")])
    operator.buffer(5, [("a", None)])
    operator.seal(8)
    assert operator.emission() == Emission(2, 5)
    operator.feedback(5, ())
    assert operator.emission() == Emission(5, 6, (("a", "1", -1),))
    operator.feedback(6, [("a", "1", -1)])
    assert operator.emission() == Emission(6, 8)
    operator.feedback(8, ())
    assert (operator.emission(), operator.frontier, operator.state) == (None, 8, {})


@pytest.mark.parametrize(
    "changes",
    [[("a", "2", 1)], [("a", "1", 1)], [("a", "2", -1)], [("b", "1", 2)], [("a", "1", -2)]],
)
def test_a_shard_that_is_not_by_key_is_noticed(changes: list[tuple[str, str, int]]) -> None:
    operator: Upsert[str, str] = Upsert(1, {"a": "1"})
    with pytest.raises(DivergedError):
        operator.feedback(2, changes)
