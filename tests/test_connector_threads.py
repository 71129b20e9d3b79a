"""Connectors in their threads: they wait, try again, go back and stop without troubling each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pyarrow as pa
import pytest

from penstock.connectors import NOTHING, Input, Output, Split
from penstock.controller import inputs, outputs
from penstock.controller.inputs import InputRunner, InputSettings
from penstock.controller.outputs import OutputRunner
from penstock.controller.work import Limits, Work, WorkQueue
from penstock.errors import ConnectorError, PenstockError, UnreachableError
from penstock.sql import Connector, Table, View


class Counting(Input):
    """Gives 0, 1, 2, ... up to `end`, one at a time; cannot be reached `down` times."""

    def __init__(self, name: str, end: int, down: int = 0) -> None:
        self.name = name
        self.at = 0
        self.end = end
        self.down = down

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        raise NotImplementedError

    def poll(self, max_rows: int) -> list[Split]:
        if self.down:
            self.down -= 1
            raise UnreachableError(f"{self.name} does not answer")
        if self.at < 0:
            raise ConnectorError(f"{self.name} is broken")
        if self.at >= self.end:
            return []
        self.at += 1
        return [Split("number", {"number": self.at - 1}, 1)]

    @property
    def ended(self) -> bool:
        return self.at >= self.end

    @property
    def position(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        self.at = position


Started = Callable[..., list[InputRunner]]


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue(Limits(max_transaction_rows=1))


@pytest.fixture
def errors() -> list[PenstockError]:
    return []


@pytest.fixture
def started(queue: WorkQueue, errors: list[PenstockError]) -> Iterator[Started]:
    """Starts inputs, each with its settings, in threads of their own."""
    running: list[tuple[InputRunner, threading.Thread]] = []

    def starting(*given: tuple[Input, InputSettings]) -> list[InputRunner]:
        runners = [InputRunner("t", source, settings, queue, errors.append) for source, settings in given]
        for runner in runners:
            runner.others = runners
            runner.paused = runner.settings.paused
            running.append((runner, threading.Thread(target=runner.run, daemon=True)))
            running[-1][1].start()
        return runners

    yield starting
    queue.close(drop=True)
    for runner, thread in running:
        runner.stop()
        thread.join(5)
        assert not thread.is_alive()


def taken(queue: WorkQueue, count: int) -> list[tuple[str, int]]:
    """The next so many numbers, with the connectors that gave them."""
    found = []
    while len(found) < count:
        works = queue.take()
        assert isinstance(works, list)
        for work in works:
            for arrival in work.arrivals:
                found += [(arrival.connector, split.payload["number"]) for split in arrival.data]
        queue.finish()
    return found


def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_an_input_that_does_not_answer_is_tried_again_and_blocks_no_other(
    queue: WorkQueue, started: Started, errors: list[PenstockError]
) -> None:
    dead, alive = started(
        (Counting("dead", 3, down=10_000), InputSettings()), (Counting("alive", 3), InputSettings())
    )
    assert taken(queue, 3) == [("alive", 0), ("alive", 1), ("alive", 2)]
    until(lambda: alive.stats()["ended"])
    assert (dead.stats()["status"], dead.stats()["last_error"]) == ("retrying", "dead does not answer")
    assert dead.stats()["errors"] >= 1
    dead.input.down = 0  # type: ignore[attr-defined]
    assert taken(queue, 3) == [("dead", 0), ("dead", 1), ("dead", 2)]
    assert not errors


def test_an_input_that_is_broken_fails_by_itself(
    queue: WorkQueue, started: Started, errors: list[PenstockError]
) -> None:
    broken = Counting("broken", 3)
    broken.at = -1
    runners = started((broken, InputSettings()), (Counting("alive", 1), InputSettings()))
    assert taken(queue, 1) == [("alive", 0)]
    until(lambda: runners[0].finished)
    assert [str(error) for error in errors] == ["broken is broken"]


def test_an_input_waits_for_those_with_a_label(queue: WorkQueue, started: Started) -> None:
    second = InputSettings(start_after=frozenset({"first"}))
    runners = started(
        (Counting("b", 1), second),
        (Counting("a", 2), InputSettings(labels=frozenset({"first"}), paused=True)),
    )
    until(lambda: runners[0].status is inputs.Status.WAITING and runners[1].status is inputs.Status.PAUSED)
    runners[1].pause(False)
    assert taken(queue, 3) == [("a", 0), ("a", 1), ("b", 0)]


def test_an_input_does_not_run_ahead(queue: WorkQueue, started: Started) -> None:
    (runner,) = started((Counting("a", 1000), InputSettings(max_queued_records=5)))
    until(lambda: queue.queued("a") == 5)
    time.sleep(0.1)
    assert queue.queued("a") == 5
    assert runner.input.position == 6  # the next one waits for room
    assert [number for _, number in taken(queue, 1000)] == list(range(1000))


def test_an_input_that_is_set_back_gives_the_same_again(queue: WorkQueue, started: Started) -> None:
    (runner,) = started((Counting("a", 50), InputSettings(max_queued_records=5)))
    for _ in range(20):
        assert taken(queue, 10) == [("a", number) for number in range(10)]
        runner.rewind(0)
    assert taken(queue, 50) == [("a", number) for number in range(50)]
    until(lambda: runner.finished)
    runner.rewind(48)  # also when it had ended
    assert taken(queue, 2) == [("a", 48), ("a", 49)]


class Remembering(Output):
    """Keeps numbers in a list that outlives it; cannot be reached `down` times."""

    name = "out"

    def __init__(self, has: list[int], down: int = 0) -> None:
        self.has = has
        self.down = down

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        raise NotImplementedError

    def open(self, owner: str, schema: pa.Schema) -> int:
        self._answer()
        return self.has[-1] if self.has else NOTHING

    def write(self, transaction: int, changes: pa.Table) -> None:
        self._answer()
        assert not self.has or transaction > self.has[-1], "delivered twice"
        self.has.append(transaction)

    def _answer(self) -> None:
        if self.down:
            self.down -= 1
            raise UnreachableError("nobody is there")


@pytest.fixture
def delivering(errors: list[PenstockError]) -> Iterator[Callable[..., OutputRunner]]:
    running: list[tuple[OutputRunner, threading.Thread]] = []

    def starting(output: Output, known: int = NOTHING) -> OutputRunner:
        runner = OutputRunner("v", output, "me", pa.schema([]), errors.append)
        runner.open(known)
        running.append((runner, threading.Thread(target=runner.run, daemon=True)))
        running[-1][1].start()
        return runner

    yield starting
    for runner, thread in running:
        runner.stop(drop=True)
        thread.join(5)
        assert not thread.is_alive()


CHANGE = pa.table({"n": [1]})


def test_an_output_gets_what_it_lacks_in_order(delivering: Callable[..., OutputRunner]) -> None:
    has = [3, 7]
    runner = delivering(Remembering(has))
    assert runner.delivered == 7
    for number in (7, 8, 11):
        runner.put(number, CHANGE)
    runner.settle()
    assert has == [3, 7, 8, 11]
    assert runner.stats()["transaction"] == 11


def test_an_output_that_cannot_be_reached_at_the_start_is_asked_later(
    delivering: Callable[..., OutputRunner],
) -> None:
    has = [1, 2]
    runner = delivering(Remembering(has, down=3), known=0)
    for number in (1, 2, 3):
        runner.put(number, CHANGE)
    until(lambda: has == [1, 2, 3])
    until(lambda: runner.behind == 0)
    assert runner.stats()["errors"] == 3


def test_what_an_unreachable_output_lacks_at_a_stop_stays_behind(
    delivering: Callable[..., OutputRunner],
) -> None:
    has: list[int] = []
    runner = delivering(Remembering(has, down=10_000))
    for number in range(1, 100):
        if number == outputs.MAX_WAITING:
            runner.unbind()  # the pipeline stops: nobody waits for room
        runner.put(number, CHANGE)
    runner.settle()  # it is in trouble, so nobody waits for it
    runner.stop(drop=False)
    until(lambda: threading.active_count() >= 1)
    assert runner.behind == 99, "a checkpoint must not be taken over these"
    assert has == []


def test_a_broken_output_says_so(
    delivering: Callable[..., OutputRunner], errors: list[PenstockError]
) -> None:
    class Broken(Remembering):
        def write(self, transaction: int, changes: pa.Table) -> None:
            raise ValueError("no")

    runner = delivering(Broken([]))
    runner.put(1, CHANGE)
    with pytest.raises(ConnectorError, match="connector out failed: no"):
        runner.settle()
    until(lambda: len(errors) == 1)
    assert (runner.stats()["status"], runner.behind) == ("failed", 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"paused": "yes"}, "'paused' is true or false, not 'yes'"),
        ({"labels": 5}, "'labels' is a list of labels, not 5"),
        ({"max_queued_records": 0}, "'max_queued_records' is a number of at least 1, not 0"),
    ],
)
def test_settings_are_checked(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConnectorError, match=message):
        InputSettings.of(Connector("c", config))


def test_work_is_named_after_its_connector() -> None:
    assert Work([]).connector == "api"
