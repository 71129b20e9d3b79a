"""The feeder: every input in turn, back-pressure, and knowing when all ended."""

from __future__ import annotations

import threading
from typing import Any, Self

import pytest

from penstock.connectors import Feeder, Input, Split
from penstock.errors import ConnectorError


class Scripted(Input):
    """Gives prepared answers, one per poll, and then ends."""

    def __init__(self, name: str, *answers: int, fails: bool = False) -> None:
        self.name = name
        self.answers = list(answers)
        self.fails = fails
        self.closed = False
        self.asked: list[int] = []

    @classmethod
    def from_config(cls, connector: Any, table: Any) -> Self:
        raise NotImplementedError

    def poll(self, max_rows: int) -> list[Split]:
        if self.fails:
            raise ConnectorError(f"connector {self.name} is broken")
        self.asked.append(max_rows)
        rows = self.answers.pop(0)
        return [Split("none", {"of": self.name}, rows)] if rows else []

    @property
    def ended(self) -> bool:
        return not self.answers

    def close(self) -> None:
        self.closed = True


def test_inputs_take_turns_until_all_ended() -> None:
    taken: list[tuple[str, Any]] = []
    waits: list[None] = []
    inputs = {"orders": [Scripted("a", 1, 1, 0, 1), Scripted("b", 1)], "customers": [Scripted("c", 1, 0)]}
    feeder = Feeder(
        inputs,
        lambda table, splits: taken.extend((table, s.payload["of"]) for s in splits),
        lambda: waits.append(None),
    )
    feeder.run()
    assert taken == [("orders", "a"), ("orders", "b"), ("customers", "c"), ("orders", "a"), ("orders", "a")]
    assert len(waits) == 1
    assert feeder.ended
    feeder.close()
    assert all(source.closed for sources in inputs.values() for source in sources)


def test_no_inputs_have_ended() -> None:
    assert Feeder({}, lambda table, splits: None).ended


def test_polls_ask_for_a_bounded_number_of_rows() -> None:
    source = Scripted("a", 1, 1)
    Feeder({"t": [source]}, lambda table, splits: None, max_poll_rows=5).run()
    assert source.asked == [5, 5]


def test_submit_that_blocks_holds_back_the_inputs() -> None:
    source = Scripted("a", *[1] * 10)
    room = threading.Semaphore(2)
    feeder = Feeder({"t": [source]}, lambda table, splits: (room.acquire(), None)[1])
    thread = threading.Thread(target=feeder.run, daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert len(source.asked) == 3
    for _ in range(8):
        room.release()
    thread.join(5)
    assert feeder.ended


def test_stop_ends_the_run() -> None:
    endless = Scripted("a", *[0] * 1000)
    feeder: Feeder
    feeder = Feeder({"t": [endless]}, lambda table, splits: None, lambda: feeder.stop())
    feeder.run()
    assert not feeder.ended
    assert len(endless.asked) == 1


def test_error_of_an_input_is_raised() -> None:
    feeder = Feeder({"t": [Scripted("a", 1, fails=True)]}, lambda table, splits: None)
    with pytest.raises(ConnectorError, match="connector a is broken"):
        feeder.run()
