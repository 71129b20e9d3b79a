"""A new generation says how far it is by itself, and compares its batches with what the leader writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.controller.outputs import OutputRunner
from penstock.controller.transactions import Transactions
from penstock.errors import StateError
from penstock.replica.config import GroupConfig
from penstock.replica.promotion import promote
from tests.replica.test_cut_over import in_shard, ready
from tests.replica.test_replicas import Site, of, sums, until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def runner(pipeline: penstock.Pipeline, name: str) -> OutputRunner:
    return next(o for o in pipeline._controller._outputs if o.name == name)  # type: ignore[union-attr]


@pytest.mark.parametrize("when", ["it is computed first", "it is written first"])
def test_one_that_computes_something_else_is_never_ready(site: Site, when: str) -> None:
    old = site.replica("old")
    old.start()
    site.lines("one", 1, 2, 3)
    until(lambda: in_shard(site) == of(1, 2, 3))
    new = site.replica("new", generation=1)
    new.start()
    until(lambda: ready(new))
    wrong = runner(new, "shared")
    put = wrong.put
    wrong.put = lambda number, changes: put(number, changes.slice(1))  # type: ignore[method-assign]
    if when == "it is computed first":
        right = runner(old, "shared")
        right.may_write = lambda: False
        old.insert("t", [{"id": 4, "g": "y", "n": 4}])
        until(lambda: sums(new) == of(1, 2, 3, 4))
        right.may_write = lambda: True
    else:
        with new._controller._between:  # type: ignore[union-attr]
            old.insert("t", [{"id": 4, "g": "y", "n": 4}])
            until(lambda: in_shard(site) == of(1, 2, 3, 4))
            until(lambda: runner(new, "shared").written == old.last_transaction)
    until(lambda: new.state == "Stopped")
    assert new.failure_code == "DIVERGED"
    assert "than this generation computed" in str(new.failure)
    with pytest.raises(StateError, match="generation 1"):
        promote(GroupConfig.of({"uri": site.uri}, "shop"), 1)
    site.lines("two", 5)
    until(lambda: in_shard(site) == of(1, 2, 3, 4, 5))


def test_what_the_leader_writes_is_not_what_this_one_has_computed(site: Site) -> None:
    old = site.replica("old")
    old.start()
    site.lines("one", 1)
    until(lambda: in_shard(site) == of(1))
    new = site.replica("new", generation=1)
    new.start()
    until(lambda: ready(new))
    last = new.last_transaction
    until(lambda: new.stats()["outputs"]["shared"]["written"] == last)
    with new._controller._between:  # type: ignore[union-attr]
        for id_ in range(2, 5):
            time.sleep(1)
            old.insert("t", [{"id": id_, "g": "xyz"[id_ % 3], "n": id_}])
            old.flush()
        until(lambda: new.stats()["outputs"]["shared"]["written"] == last + 3)
        shown = new.stats()["outputs"]["shared"]
        assert (shown["computed"], shown["transaction"]) == (last, last)
        time.sleep(2)
        group = new.stats()["group"]
        assert (group["hydrated"], group["lag_transactions"]) == (True, 3)
        place = PlaceTimes(site)
        assert group["lag_seconds"] == pytest.approx(place.between(last, last + 3), abs=0.01)
        assert group["lag_seconds"] >= 3, "each came a second after the one before"
    until(lambda: sums(new) == of(1, 2, 3, 4))
    until(lambda: new.stats()["group"]["lag_seconds"] == 0)
    assert new.stats()["outputs"]["shared"]["computed"] == last + 3


class PlaceTimes:
    """The times of decisions."""

    def __init__(self, site: Site) -> None:
        self._binding = next(
            p._controller._group._binding  # type: ignore[union-attr]
            for p in site._made
            if p._controller is not None
        )

    def between(self, first: int, last: int) -> float:
        assert self._binding is not None
        begin, end = self._binding.time_of(first), self._binding.time_of(last)
        assert begin is not None
        assert end is not None
        return (end - begin).total_seconds()


def test_one_without_views_yet_is_not_promoted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    old = site.replica("old", lease_seconds=1)
    old.start()
    for id_ in range(3):
        old.insert("t", [{"id": id_, "g": "xyz"[id_ % 3], "n": id_}])
        old.flush()
    binding = old._controller._group._binding  # type: ignore[union-attr]
    until(lambda: binding is not None and binding.refresh().since > 0, "nothing is let go of")
    goes_on = threading.Event()
    hydrate = Transactions.hydrate

    def slowly(transactions: Any) -> None:
        assert goes_on.wait(120)
        hydrate(transactions)

    monkeypatch.setattr(Transactions, "hydrate", slowly)
    new = site.replica("new", generation=1)
    new.start(wait=False)
    config = GroupConfig.of({"uri": site.uri}, "shop")
    until(lambda: "group" in new.stats() and not new.stats()["group"]["hydrated"])

    def refused() -> str:
        with pytest.raises(StateError) as caught:
            promote(config, 1)
        return str(caught.value)

    until(lambda: "it computes its views from what the tables have" in refused())
    goes_on.set()
    until(lambda: new.stats()["group"]["hydrated"] and ready(new))
    promote(config, 1)
    until(lambda: old.failure_code == "FENCED")
