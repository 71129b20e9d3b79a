"""Who looks for news does so seldom where a look costs and nothing came for long, and often otherwise."""

from __future__ import annotations

import pytest

from penstock.connectors.input.shard import ShardInput
from penstock.shard import pace
from penstock.shard.pace import Pace
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.writer import ShardWriter
from tests.shard.rows import changes, opened


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pace, "time", found)
    monkeypatch.setattr("penstock.connectors.input.shard.time", found)
    return found


def test_the_longer_nothing_came_the_longer_the_pause(clock: Clock) -> None:
    found = Pace(0.05, 0.5)
    assert found.after(1) == 0.05
    clock.now += 1.0
    assert found.after(1) == 0.05
    clock.now += 3.0
    assert found.after(1) == pytest.approx(0.2)
    clock.now += 60.0
    assert found.after(1) == 0.5
    assert found.after(2) == 0.05


def test_a_place_where_looking_costs_nothing(clock: Clock) -> None:
    found = Pace(0.05, 0.0)
    found.after(1)
    clock.now += 60.0
    assert found.after(1) == 0.05


@pytest.mark.parametrize("config", ["directory", "bucket"], indirect=True)
def test_an_input_that_has_nothing(config: PlaceConfig, clock: Clock) -> None:
    writer = ShardWriter(opened(config.opened()), "writer")
    writer.compare_and_append(changes((1, "a", 0, 1)), 0, 1)
    given = ShardInput("in", config, "s", ["key", "value"], 60.0)
    assert given.poll(10)
    clock.now += 60.0
    assert not given.poll(10)
    shard = given._opened()
    looks = 0
    refresh = shard.machine.refresh

    def counted() -> object:
        nonlocal looks
        looks += 1
        return refresh()

    shard.machine.refresh = counted  # type: ignore[method-assign, assignment]
    for _ in range(200):
        clock.now += 0.05
        assert not given.poll(10)
    assert looks == pytest.approx(20 if config.uri.startswith("s3") else 100, abs=5)
    writer.compare_and_append(changes((1, "b", 1, 1)), 1, 2)
    clock.now += 0.5
    assert given.poll(10)
    before = looks
    for _ in range(10):
        clock.now += 0.1001
        given.poll(10)
    assert looks - before == 10
    given.close()
