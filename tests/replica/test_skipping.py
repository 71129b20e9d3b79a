"""A transaction that fails in one replica and not in another is run by all of them or by none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.controller.skip import skip_transaction
from penstock.errors import EvaluationError, StateError
from penstock.replica.config import GroupConfig
from penstock.replica.promotion import promote
from tests.replica.test_cut_over import in_shard
from tests.replica.test_replicas import Site, broken_by_zero, delivered, of, sums, until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def corrected(site: Site) -> str:
    return broken_by_zero(site).replace("100 / n", "100 / nullif(n, 0)")


def fails_at(site: Site, *pipelines: penstock.Pipeline) -> int:
    """The number of a transaction with id 3 that the first of them cannot evaluate."""
    old = pipelines[0]
    site.lines("one", 1)
    until(lambda: all(sums(one) == of(1) for one in pipelines))
    old.insert("t", [{"id": 3, "g": "x", "n": 0}])
    with pytest.raises(EvaluationError):
        old.flush()
    return old.last_transaction + 1


def has(pipeline: penstock.Pipeline, *ids: int) -> bool:
    return {row["id"] for row in pipeline.query("SELECT id FROM t").to_pylist()} == set(ids)


def test_a_new_generation_has_run_it_and_the_old_one_skips_it(site: Site) -> None:
    old = site.replica("old", program=broken_by_zero(site))
    old.start()
    new = site.replica("new", program=corrected(site), generation=1)
    new.start()
    number = fails_at(site, old, new)
    until(lambda: has(new, 1, 3), "the new program can run it")
    old.resume(skip_transaction=number)
    until(lambda: new.state == "Stopped")
    assert new.failure_code == "DIVERGED"
    assert f"transaction {number} was skipped" in str(new.failure)
    site.lines("two", 2)
    until(lambda: sums(old) == of(1, 2))
    with pytest.raises(StateError, match="generation 1"):
        promote(GroupConfig.of({"uri": site.uri}, "shop"), 1)
    again = site.replica("again", program=corrected(site), generation=1)
    again.start()
    until(lambda: again.stats()["group"]["ready"])
    again.promote()
    until(lambda: not again.stats()["group"]["read_only"])
    again.delete("t", [{"id": 1}])
    again.flush()
    until(lambda: in_shard(site) == of(2))
    until(lambda: delivered(site) == of(2))
    assert has(again, 2)


def test_one_that_was_stopped_finds_out_when_it_starts(site: Site) -> None:
    old = site.replica("old", program=broken_by_zero(site))
    old.start()
    new = site.replica("new", program=corrected(site), generation=1)
    new.start()
    number = fails_at(site, old, new)
    until(lambda: has(new, 1, 3))
    new.stop()  # with a checkpoint, which has it
    old.resume(skip_transaction=number)
    site.lines("two", 2)
    until(lambda: sums(old) == of(1, 2))
    new = site.replica("new", program=corrected(site), generation=1)
    new.start()
    until(lambda: new.failure_code == "DIVERGED")


def test_a_new_generation_takes_over_with_what_the_old_one_could_not_run(site: Site) -> None:
    old = site.replica("old", program=broken_by_zero(site))
    old.start()
    new = site.replica("new", program=corrected(site), generation=1)
    new.start()
    number = fails_at(site, old, new)
    until(lambda: has(new, 1, 3) and new.stats()["group"]["ready"])
    new.promote()
    until(lambda: not new.stats()["group"]["read_only"])
    new.insert("t", [{"id": 2, "g": "z", "n": 2}])
    new.flush()
    until(lambda: in_shard(site) == {**of(1, 2), "x": (1, 0)})
    with pytest.raises(penstock.errors.PenstockError):
        old.resume(skip_transaction=number)  # it is fenced, or is told that another one has run it
    assert has(new, 1, 2, 3)


def test_one_that_gets_to_it_later_skips_it_too(site: Site) -> None:
    old = site.replica("old", program=broken_by_zero(site))
    old.start()
    site.lines("one", 1)
    until(lambda: sums(old) == of(1))
    new = site.replica("new", program=corrected(site), generation=1)
    new.start()
    until(lambda: has(new, 1))
    new.kill()
    number = fails_at(site, old)
    old.resume(skip_transaction=number)
    new = site.replica("new", program=corrected(site), generation=1)
    new.start()
    old.insert("t", [{"id": 2, "g": "z", "n": 2}])
    old.flush()
    until(lambda: has(new, 1, 2))
    until(lambda: new.stats()["group"]["ready"])
    new.promote()
    until(lambda: not new.stats()["group"]["read_only"])
    until(lambda: in_shard(site) == of(1, 2))


def test_one_skips_it_while_another_one_runs_it(site: Site) -> None:
    """The one that runs it had looked before anybody skipped it."""
    a, b = site.replica("a"), site.replica("b")
    a.start()
    b.start()
    site.lines("one", 1)
    until(lambda: sums(a) == sums(b) == of(1))
    runs, goes_on = threading.Event(), threading.Event()
    slow = a._controller._transactions  # type: ignore[union-attr]
    run = slow.run

    def slowly(*given: Any) -> Any:
        found = run(*given)
        runs.set()
        assert goes_on.wait(120)
        return found

    def fail(*_: object) -> Any:
        raise EvaluationError("no memory")

    slow.run = slowly  # type: ignore[method-assign]
    transactions = b._controller._transactions  # type: ignore[union-attr]
    here, transactions.run = transactions.run, fail  # type: ignore[method-assign]
    a.insert("t", [{"id": 2, "g": "z", "n": 2}])
    assert runs.wait(120)
    until(lambda: b.state == "Paused")
    b.resume(skip_transaction=b.last_transaction + 1)
    transactions.run = here  # type: ignore[method-assign]
    goes_on.set()
    until(lambda: a.state == "Stopped")
    assert "was skipped by another replica while this one ran it" in str(a.failure)
    a.kill()
    a = site.replica("a")
    a.start()
    site.lines("two", 4)
    until(lambda: sums(a) == sums(b) == of(1, 4))
    until(lambda: delivered(site) == in_shard(site) == of(1, 4))


def test_it_is_skipped_in_a_replica_that_is_stopped(site: Site) -> None:
    a, b = (site.replica(name, program=broken_by_zero(site)) for name in "ab")
    a.start()
    b.start()
    number = fails_at(site, a, b)
    until(lambda: b.state == "Paused")
    a.stop()
    with pytest.raises(StateError, match="with --group"):
        skip_transaction(site.root / "a", number)
    skip_transaction(site.root / "a", number, {"uri": site.uri})
    until(lambda: b.state == "Running")
    a = site.replica("a", program=broken_by_zero(site))
    a.start()
    site.lines("two", 2)
    until(lambda: sums(a) == sums(b) == of(1, 2))
