"""What each host took in, over restarts and other numbers of hosts."""

from __future__ import annotations

from unittest.mock import Mock

from penstock.controller.statistics import Statistics
from penstock.engine.engine import reads_of
from penstock.hosts.cluster import Cluster
from penstock.trace.host import FETCHED, HELD, WRITTEN


def test_what_a_host_took_in_that_is_no_more_is_another_ones() -> None:
    statistics = Statistics({}, {"processed": {"0": 5, "1": 7, "2": 11}}, hosts=2)
    statistics.record(1, None, {}, {}, {}, {}, {"1": 100})
    assert statistics.processed() == [16, 107]
    assert statistics.saved()["processed"] == {"0": 16, "1": 107}, "as the next checkpoint has it"


def test_hosts_that_are_new_took_in_nothing_yet() -> None:
    assert Statistics({}, {"processed": {"0": 5}}, hosts=3).processed() == [5, 0, 0]


def test_hosts_are_summed() -> None:
    cluster = Cluster.__new__(Cluster)
    cluster.coordinator = Mock(**{"stats.return_value": {"hosts": [{}, {}]}, "lost.return_value": {}})
    cluster.files, cluster.waits = None, ""
    shares = [{"processed_records": n, "batches": n + 1, "rows": n + 2, "bytes": n + 3} for n in (10, 20)]
    found = cluster.stats(shares)
    assert {what: found[what] for what in shares[0]} == {
        "processed_records": 30,
        "batches": 32,
        "rows": 34,
        "bytes": 36,
    }
    assert [host["rows"] for host in found["hosts"]] == [12, 22]


def test_a_batch_that_was_fetched_counts_as_fetched() -> None:
    """Whichever task on the host reports last."""
    fetched = {("read", "t", "a", "0", FETCHED): True}
    held = {("read", "t", "a", "0", HELD): True}
    others = {("read", "t", "a", "1", HELD): True, ("read", "t", "b", "0", WRITTEN): True}
    expected = {(0, FETCHED): 1, (1, HELD): 1, (0, WRITTEN): 1}
    for told in ({**fetched, **held, **others}, {**held, **fetched, **others}):
        found = list(reads_of(told))
        assert {one: found.count(one) for one in found} == expected
