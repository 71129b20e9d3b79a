"""An output that gets nothing though there is something for it is stalled, and never said to run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import pyarrow as pa
import pytest

from penstock.connectors import NOTHING, Output
from penstock.controller import outputs
from penstock.controller.outputs import OutputRunner
from penstock.errors import UnreachableError
from penstock.sql import Connector, View

STALL = 0.3
SCHEMA = pa.schema([("x", pa.int64())])
CHANGES = pa.table({"x": [1], "_change_type": ["insert"], "_weight": [1]})


class Fake(Output):
    """Takes what it is given, unless it hangs or cannot be reached."""

    name = "fake"
    advances = True

    def __init__(self) -> None:
        self.has = NOTHING
        self.away = False
        self.free = threading.Event()
        self.free.set()

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        raise NotImplementedError

    def open(self, owner: str, schema: pa.Schema) -> int:
        return self.has

    def write(self, transaction: int, changes: pa.Table) -> None:
        self.free.wait()
        if self.away:
            raise UnreachableError("it is away")
        self.has = transaction

    def advance(self, transaction: int) -> None:
        self.write(transaction, CHANGES)


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def runner(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[OutputRunner]:
    monkeypatch.setattr(outputs, "STALL_SECONDS", STALL)
    found = OutputRunner("v", fake, "owner", SCHEMA, lambda error: None)
    found.open(NOTHING)
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    yield found
    fake.free.set()
    found.stop(drop=True)
    thread.join(10)


def status(runner: OutputRunner) -> str:
    return str(runner.stats()["status"])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_one_that_has_everything_is_not_stalled_however_long_nothing_comes(runner: OutputRunner) -> None:
    runner.put(0, CHANGES)
    until(lambda: runner.delivered == 0)
    time.sleep(2 * STALL)
    assert (status(runner), runner.stats()["stalled"]) == ("running", None)


def test_one_that_hangs(runner: OutputRunner, fake: Fake) -> None:
    runner.put(0, CHANGES)
    until(lambda: runner.delivered == 0)
    fake.free.clear()
    runner.put(1, CHANGES)
    assert status(runner) == "running"
    until(lambda: status(runner) == "stalled")
    assert (
        runner.stats()["stalled"]
        == "it has nothing after transaction 0: the connector does not come back from writing"
    )
    fake.free.set()
    until(lambda: status(runner) == "running")
    assert runner.stats()["stalled"] is None


def test_one_that_cannot_be_reached(runner: OutputRunner, fake: Fake) -> None:
    fake.away = True
    runner.put(0, CHANGES)
    until(lambda: status(runner) == "retrying")
    until(lambda: status(runner) == "stalled")
    assert runner.stats()["stalled"] == "it has nothing yet: it is away"
    fake.away = False
    until(lambda: status(runner) == "running")


def test_a_frontier_that_stays_though_nothing_changes_the_view(runner: OutputRunner, fake: Fake) -> None:
    fake.free.clear()
    runner.pass_on(5)
    until(lambda: status(runner) == "stalled")
    fake.free.set()
    until(lambda: runner.delivered == 5 and status(runner) == "running")


def test_one_that_is_slow_but_gets_on_is_not_stalled(runner: OutputRunner, fake: Fake) -> None:
    seen = set()
    for number in range(8):
        runner.put(number, CHANGES)
    fake.free.clear()
    for _ in range(8):
        time.sleep(STALL / 3)
        seen.add(status(runner))
        fake.free.set()
        until(lambda: True)
        time.sleep(0.01)
        fake.free.clear()
    assert seen == {"running"}


def test_one_that_another_replica_should_write(runner: OutputRunner) -> None:
    runner.lead(False)
    runner.put(0, CHANGES)
    runner.put(1, CHANGES)
    assert status(runner) == "following"
    until(lambda: status(runner) == "stalled")
    assert "the replica that leads gives it nothing" in runner.stats()["stalled"]
    runner.reached(0)
    assert status(runner) == "following"
    runner.reached(1)
    time.sleep(2 * STALL)
    assert status(runner) == "following"


def test_what_is_held_on_purpose_is_said_to_be_held(runner: OutputRunner) -> None:
    runner.limit = 3
    runner.put(4, CHANGES)
    time.sleep(2 * STALL)
    assert (status(runner), runner.stats()["stalled"]) == ("held", None)
    runner.release("id", 4)
    until(lambda: status(runner) == "running" and runner.delivered == 4)
