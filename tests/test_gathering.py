"""Clients that push rows, wait until they are in, and push again, share transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from penstock.controller.work import GATHERED_ROWS, Ask, Limits, Request, Work, WorkQueue
from penstock.journal.arrival import Arrival

TOOK = 0.5
"""Seconds that the first transaction takes: the next one waits at most twice as long."""

AT_ONCE = 0.2


def pushed(rows: int = 1) -> Work:
    return Work([Arrival("t", pa.table({"id": list(range(rows))}))])


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def queue() -> Iterator[WorkQueue]:
    """One that has just finished a transaction of three senders."""
    queue = WorkQueue(Limits(max_gathering_delay_usecs=60_000_000))
    for _ in range(3):
        queue.put(pushed())
    assert len(_works(queue.take())) == 3
    time.sleep(TOOK)
    queue.finish()
    yield queue
    queue.close(drop=True)


def _works(taken: object) -> list[Work]:
    assert isinstance(taken, list)
    return taken


def _takes(queue: WorkQueue, pool: ThreadPoolExecutor) -> Future[Any]:
    return pool.submit(queue.take)


def test_all_of_them_are_waited_for(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    taking = _takes(queue, pool)
    for _ in range(2):
        queue.put(pushed())
        with pytest.raises(TimeoutError):
            taking.result(0.05)
    queue.put(pushed())
    assert len(_works(taking.result(AT_ONCE))) == 3


def test_who_does_not_come_is_not_waited_for_again(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    began = time.monotonic()
    queue.put(pushed())
    assert len(_works(queue.take())) == 1
    assert TOOK < time.monotonic() - began < 3 * TOOK
    queue.finish()
    queue.put(pushed())
    assert len(_works(_takes(queue, pool).result(AT_ONCE))) == 1


def test_a_request_does_not_wait(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    queue.put(pushed())
    queue.ask(Request(Ask.COMMIT))
    assert len(_works(_takes(queue, pool).result(AT_ONCE))) == 1


def test_many_rows_do_not_wait(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    queue.put(pushed(GATHERED_ROWS + 1))
    assert len(_works(_takes(queue, pool).result(AT_ONCE))) == 1


def test_a_single_sender_is_not_waited_for(pool: ThreadPoolExecutor) -> None:
    queue = WorkQueue(Limits(max_gathering_delay_usecs=60_000_000))
    for _ in range(3):
        queue.put(pushed())
        assert len(_works(_takes(queue, pool).result(AT_ONCE))) == 1
        time.sleep(0.05)
        queue.finish()
