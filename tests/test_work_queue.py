"""What waits to be taken into a transaction: in which order, how much together, and who has to wait."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import Split
from penstock.controller.work import Ask, Limits, Request, Work, WorkQueue
from penstock.errors import StateError
from penstock.journal.arrival import Arrival
from penstock.journal.record import API

SOON = 20.0
"""Seconds within which another thread does what it can; far more than it needs."""

A_WHILE = 0.1
"""Seconds in which another thread would have done what it must not do."""


def _work(connector: str = "in", rows: int | None = 1, *, alone: bool = False) -> Work:
    return Work([Arrival("t", [Split("csv", {}, rows)], connector)], alone)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def queue(pool: ThreadPoolExecutor) -> Iterator[WorkQueue]:
    queue = WorkQueue(Limits(max_transaction_rows=10, max_queued_rows=20))
    yield queue
    queue.close(drop=True)  # so that no thread of a test that failed waits for good


def _waits(future: Future[Any]) -> bool:
    with pytest.raises(TimeoutError):
        future.result(A_WHILE)
    return True


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# -- what is counted ----------------------------------------------------------------------------


def test_rows_of_work_are_those_of_its_arrivals() -> None:
    table = pa.table({"id": [1, 2, 3]})
    splits = [Split("csv", {}, 4), Split("csv", {}, None)]
    work = Work([Arrival("t", table), Arrival("t", splits, "in")])
    assert work.rows == 7
    assert work.connector == API
    assert (Work([]).rows, Work([]).connector) == (0, API)


# -- order --------------------------------------------------------------------------------------


def test_work_that_waits_is_taken_together_in_order(queue: WorkQueue) -> None:
    works = [_work(f"c{n}") for n in range(5)]
    for work in works:
        assert queue.put(work)
    assert queue.take() == works


def test_work_is_taken_up_to_the_limit(queue: WorkQueue) -> None:
    works = [_work(rows=n) for n in (4, 6, 1, 9, 9)]
    for work in works[:4]:
        queue.put(work)
    assert queue.queued("in") == 20
    assert queue.take() == works[:2]
    queue.put(works[4])
    assert queue.take() == works[2:4]
    assert queue.take() == works[4:]
    assert queue.queued("in") == 0


def test_work_above_the_limit_is_taken_by_itself(queue: WorkQueue) -> None:
    works = [_work("a", 100), _work("b", 1), _work("c", 100), _work("d", 1)]
    for work in works:
        queue.put(work)
    assert [queue.take() for _ in works] == [[work] for work in works]


def test_work_without_rows_does_not_end_a_step(queue: WorkQueue) -> None:
    works = [_work(rows=10), _work(rows=0), _work(rows=None)]
    for work in works:
        queue.put(work)
    assert queue.take() == works


@pytest.mark.parametrize("place", range(4))
def test_work_that_is_alone_joins_nothing(queue: WorkQueue, place: int) -> None:
    works = [_work(f"c{n}", alone=n == place) for n in range(4)]
    for work in works:
        queue.put(work)
    expected = [part for part in (works[:place], [works[place]], works[place + 1 :]) if part]
    assert [queue.take() for _ in expected] == expected
    assert queue.idle is False
    queue.finish()
    assert queue.idle


def test_two_that_are_alone_are_taken_one_by_one(queue: WorkQueue) -> None:
    works = [_work(alone=True), _work(alone=True)]
    for work in works:
        queue.put(work)
    assert [queue.take(), queue.take()] == [[works[0]], [works[1]]]


def test_a_request_has_its_place_among_the_work(queue: WorkQueue) -> None:
    first, second, third, fourth = works = [_work() for _ in range(4)]
    begin, commit = Request(Ask.BEGIN), Request(Ask.COMMIT)
    for item in (begin, first, second, commit, third, fourth):
        if isinstance(item, Request):
            assert queue.ask(item)
        else:
            queue.put(item)
    assert queue.take() is begin
    assert queue.take() == works[:2]
    assert queue.take() is commit
    assert queue.take() == works[2:]


ITEMS = st.lists(
    st.none() | st.tuples(st.sampled_from(["a", "b"]), st.none() | st.integers(0, 15), st.booleans()),
    max_size=12,
)


@given(items=ITEMS)
def test_all_that_is_put_is_taken_once_in_order_within_the_limits(
    items: list[tuple[str, int | None, bool] | None],
) -> None:
    queue = WorkQueue(Limits(max_transaction_rows=10, max_queued_rows=1000))
    put: list[Work | Request] = []
    for item in items:
        if item is None:
            put.append(request := Request(Ask.RETRY))
            queue.ask(request)
        else:
            put.append(work := _work(item[0], item[1], alone=item[2]))
            queue.put(work)
    queue.close(drop=False)
    steps = []
    while (taken := queue.take()) is not None:
        steps.append(taken)
    assert [item for step in steps for item in ([step] if isinstance(step, Request) else step)] == put
    for step in steps:
        if isinstance(step, Request) or len(step) == 1:
            continue
        assert not any(work.alone for work in step)
        assert sum(work.rows for work in step) <= 10
    for before, after in itertools.pairwise(steps):
        if not isinstance(before, Request) and not isinstance(after, Request):
            why = before[0].alone or after[0].alone
            assert why or sum(work.rows for work in [*before, after[0]]) > 10, "it could have been joined"
    assert (queue.queued("a"), queue.queued("b")) == (0, 0)


# -- back-pressure ------------------------------------------------------------------------------


def test_take_waits_for_something(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    taken = pool.submit(queue.take)
    assert _waits(taken)
    work = _work()
    queue.put(work)
    assert taken.result(SOON) == [work]
    asked = pool.submit(queue.take)
    request = Request(Ask.BEGIN)
    queue.ask(request)
    assert asked.result(SOON) is request


def test_a_connector_waits_until_its_rows_are_taken(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    queue.put(_work("slow", 20))
    late = pool.submit(queue.put, _work("slow", 5))
    assert _waits(late)
    assert queue.put(_work("other", 5)), "another connector has rows of its own"
    assert _waits(late)
    queue.take()
    assert late.result(SOON)
    assert queue.queued("slow") == 5


def test_work_may_exceed_the_limit_once(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    assert queue.put(_work(rows=19))
    assert queue.put(_work(rows=1000)), "there was room when it came"
    late = pool.submit(queue.put, _work(rows=0))
    assert _waits(late)
    queue.take()
    assert _waits(late), "1000 rows wait yet"
    queue.take()
    assert late.result(SOON)


def test_a_connector_may_have_its_own_limit(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    assert queue.put(_work(rows=1), limit=1)
    late = pool.submit(lambda: queue.put(_work(rows=1), limit=1))
    assert _waits(late)
    assert queue.put(_work("in", 1), limit=100)
    assert queue.put(_work(API, 1))
    queue.take()
    assert late.result(SOON)


def test_requests_do_not_wait_for_room(queue: WorkQueue) -> None:
    queue.put(_work(API, 100))
    assert queue.ask(Request(Ask.COMMIT))


def test_work_that_is_wanted_no_longer_is_not_queued(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    assert not queue.put(_work(), still=lambda: False)
    queue.put(_work(rows=20))
    wanted = threading.Event()
    wanted.set()
    late = pool.submit(lambda: queue.put(_work(), still=wanted.is_set))
    assert _waits(late)
    wanted.clear()
    queue.wake()
    assert late.result(SOON) is False
    assert queue.queued("in") == 20


def test_work_that_is_still_wanted_goes_on_waiting(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    queue.put(_work(rows=20))
    late = pool.submit(queue.put, _work())
    for _ in range(3):
        queue.wake()
    assert _waits(late)
    queue.take()
    assert late.result(SOON)


def test_work_that_came_to_be_unwanted_as_room_was_made_is_not_queued(
    queue: WorkQueue, pool: ThreadPoolExecutor
) -> None:
    """A roll-back makes room, and what was polled before it must not come in."""
    queue.put(_work(rows=20))
    wanted = threading.Event()
    wanted.set()
    late = pool.submit(lambda: queue.put(_work(), still=wanted.is_set))
    assert _waits(late)
    wanted.clear()
    queue.discard("in")
    assert late.result(SOON) is False
    assert queue.queued("in") == 0
    assert queue.idle


# -- while a transaction has failed -------------------------------------------------------------


def test_take_request_leaves_work_where_it_is(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    first, second = _work("a"), _work("b")
    retry, skip = Request(Ask.RETRY), Request(Ask.SKIP)
    queue.put(first)
    taken = pool.submit(queue.take_request)
    assert _waits(taken), "work is no request"
    queue.ask(retry)
    assert taken.result(SOON) is retry
    queue.put(second)
    queue.ask(skip)
    assert queue.take_request() is skip
    assert queue.take() == [first, second]


def test_take_request_ends_with_the_queue(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    queue.put(_work())
    taken = pool.submit(queue.take_request)
    assert _waits(taken)
    queue.close(drop=False)
    assert taken.result(SOON) is None
    assert queue.take_request() is None


def test_a_request_that_was_queued_is_answered_though_the_queue_was_closed(queue: WorkQueue) -> None:
    """Who asked waits for the answer."""
    queue.put(_work())
    request = Request(Ask.RETRY)
    assert queue.ask(request)
    queue.close(drop=False)
    assert queue.take_request() is request
    assert queue.take_request() is None


def test_a_request_may_go_ahead_of_work_unless_it_opens_a_transaction(queue: WorkQueue) -> None:
    work, skip, begin, commit = _work(), Request(Ask.SKIP), Request(Ask.BEGIN), Request(Ask.COMMIT)
    assert queue.take_ahead() is None
    queue.put(work)
    for request in (skip, begin, commit):
        queue.ask(request)
    assert queue.take_ahead() is skip
    assert queue.take_ahead() is None, "neither what was sent before, nor what comes after, is out of place"
    assert queue.take() == [work]
    assert queue.take_ahead() is begin
    assert queue.take_ahead() is commit


# -- discard ------------------------------------------------------------------------------------


def test_discard_forgets_one_connector(queue: WorkQueue, pool: ThreadPoolExecutor) -> None:
    kept, request = _work("b", 3), Request(Ask.BEGIN)
    queue.put(gone := _work("a", 20))
    queue.put(kept)
    queue.ask(request)
    late = pool.submit(queue.put, again := _work("a", 2))
    assert _waits(late)
    assert queue.discard("a") == [gone]
    assert late.result(SOON), "there is room again"
    assert (queue.queued("a"), queue.queued("b")) == (2, 3)
    assert queue.take() == [kept]
    assert queue.take() is request
    assert queue.take() == [again]
    assert (queue.queued("a"), queue.queued("b")) == (0, 0)


def test_discard_of_what_was_taken_changes_nothing(queue: WorkQueue) -> None:
    queue.put(_work("a", 5))
    queue.take()
    assert queue.discard("a") == queue.discard("unknown") == []
    assert queue.queued("a") == 0
    assert not queue.idle
    queue.finish()
    assert queue.idle


# -- close --------------------------------------------------------------------------------------


def test_a_closed_queue_is_emptied_first(queue: WorkQueue) -> None:
    work, request = _work(), Request(Ask.COMMIT)
    queue.put(work)
    queue.ask(request)
    queue.close(drop=False)
    assert not queue.put(_work())
    assert not queue.ask(Request(Ask.BEGIN))
    assert queue.take() == [work]
    assert queue.take() is request
    assert queue.take() is None
    assert queue.take() is None
    assert not work.done.is_set(), "who took it says when it is done"
    assert not request.done.is_set()


def test_a_closed_queue_can_drop_what_it_has(queue: WorkQueue) -> None:
    items: list[Work | Request] = [_work("a", 5), Request(Ask.COMMIT), _work("b", alone=True)]
    for item in items:
        if isinstance(item, Work):
            queue.put(item)
        else:
            queue.ask(item)
    queue.close(drop=True)
    assert queue.take() is None
    assert queue.take_request() is None
    assert queue.idle
    assert queue.queued("a") == 0
    for item in items:
        assert item.done.is_set()
        assert isinstance(item.error, StateError)
        assert "the pipeline was stopped before this was done" in str(item.error)


def test_what_a_closed_queue_still_has_can_be_dropped_later(queue: WorkQueue) -> None:
    work = _work()
    queue.put(work)
    queue.close(drop=False)
    queue.close(drop=True)
    assert work.done.is_set()
    assert queue.take() is None


@pytest.mark.parametrize("drop", [True, False])
def test_closing_wakes_all_who_wait(drop: bool, pool: ThreadPoolExecutor) -> None:
    empty, full = WorkQueue(Limits()), WorkQueue(Limits(max_queued_rows=1))
    full.put(_work())
    taking, asking = pool.submit(empty.take), pool.submit(empty.take_request)
    putting = [pool.submit(full.put, _work()) for _ in range(3)]
    waiting: list[Future[Any]] = [taking, asking, *putting]
    assert all(_waits(future) for future in waiting)
    empty.close(drop=drop)
    full.close(drop=drop)
    assert taking.result(SOON) is None
    assert asking.result(SOON) is None
    assert [future.result(SOON) for future in putting] == [False] * 3


# -- waiting for company ------------------------------------------------------------------------

HOUR = 3_600_000_000


@pytest.fixture
def patient(pool: ThreadPoolExecutor) -> Iterator[WorkQueue]:
    queue = WorkQueue(Limits(min_batch_size_records=10, max_buffering_delay_usecs=HOUR))
    yield queue
    queue.close(drop=True)


def test_few_rows_wait_for_more(patient: WorkQueue, pool: ThreadPoolExecutor) -> None:
    works = [_work("a", 4), _work("b", 5), _work("a", 1)]
    taken = pool.submit(patient.take)
    for work in works[:2]:
        patient.put(work)
        assert _waits(taken)
    patient.put(works[2])
    assert taken.result(SOON) == works


def test_a_request_does_not_wait_and_neither_does_what_came_before_it(
    patient: WorkQueue, pool: ThreadPoolExecutor
) -> None:
    work, request = _work(), Request(Ask.COMMIT)
    patient.put(work)
    taken = pool.submit(patient.take)
    assert _waits(taken)
    patient.ask(request)
    assert taken.result(SOON) == [work]
    assert patient.take() is request


def test_work_that_is_alone_does_not_wait(patient: WorkQueue) -> None:
    work = _work(alone=True)
    patient.put(work)
    assert patient.take() == [work]


def test_a_closed_queue_does_not_wait(patient: WorkQueue, pool: ThreadPoolExecutor) -> None:
    work = _work()
    patient.put(work)
    taken = pool.submit(patient.take)
    assert _waits(taken)
    patient.close(drop=False)
    assert taken.result(SOON) == [work]


def test_rows_wait_no_longer_than_the_delay(pool: ThreadPoolExecutor) -> None:
    queue = WorkQueue(Limits(min_batch_size_records=1000, max_buffering_delay_usecs=300_000))
    begin = time.monotonic()
    works = [_work(), _work()]
    queue.put(works[0])
    taken = pool.submit(queue.take)
    queue.put(works[1])
    assert taken.result(SOON) == works
    assert time.monotonic() - begin >= 0.3


def test_the_delay_begins_anew_once_all_was_taken(pool: ThreadPoolExecutor) -> None:
    queue = WorkQueue(Limits(min_batch_size_records=1000, max_buffering_delay_usecs=200_000))
    for _ in range(2):
        begin = time.monotonic()
        queue.put(_work())
        queue.take()
        assert time.monotonic() - begin >= 0.2


@pytest.mark.parametrize("rows", [None, 0, 1])
def test_the_delay_does_not_begin_anew_with_each_arrival(rows: int | None, pool: ThreadPoolExecutor) -> None:
    """Rows that nobody counted must not be put off for good by those that follow."""
    queue = WorkQueue(Limits(min_batch_size_records=1_000_000, max_buffering_delay_usecs=200_000))
    stopped = threading.Event()

    def feed() -> None:
        while not stopped.wait(0.02):
            queue.put(_work(rows=rows))

    feeding = pool.submit(feed)
    try:
        taken = pool.submit(queue.take).result(SOON)
    finally:
        stopped.set()
        feeding.result(SOON)
        queue.close(drop=True)
    assert isinstance(taken, list)
    assert len(taken) >= 2


def test_without_a_delay_nothing_waits() -> None:
    queue = WorkQueue(Limits(min_batch_size_records=1000))
    queue.put(_work())
    assert queue.take() is not None


# -- many at once -------------------------------------------------------------------------------


def test_many_connectors_at_once_lose_nothing(pool: ThreadPoolExecutor) -> None:
    queue = WorkQueue(Limits(max_transaction_rows=7, max_queued_rows=5))
    given_ = {f"c{n}": [_work(f"c{n}", 1 + k % 3) for k in range(200)] for n in range(4)}

    def feed(works: list[Work]) -> bool:
        return all(queue.put(work) for work in works)

    feeding = [pool.submit(feed, works) for works in given_.values()]
    taken: list[Work] = []
    most = 0
    while len(taken) < 800:
        most = max(most, *(queue.queued(name) for name in given_))
        step = queue.take()
        assert isinstance(step, list)
        assert sum(work.rows for work in step) <= 7
        taken += step
        queue.finish()
    assert all(future.result(SOON) for future in feeding)
    for name, works in given_.items():
        assert [work for work in taken if work.connector == name] == works
    assert most <= 5 + 2, "fewer than 5 and the largest"
    _until(lambda: queue.idle)
