"""A pipeline on one machine and on hosts, which are killed: views and sink are those of the history."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.shop import READ
from tests.hosts.site import PATIENCE, Site, addresses_of, kill, told
from tests.oracle.history import seed_of_run

KILLS = int(os.environ.get("PENSTOCK_KILLS", "10"))


def rows_taken_in(stats: dict[str, Any]) -> int:
    """By all tables together."""
    return sum(table["rows_in"] for table in stats["tables"].values())


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_hosts_comes_to_the_same(tmp_path: Path, count: int) -> None:
    """Numbers of transactions, one that is rolled back, a checkpoint, a journal that is replayed, a sink, and
    two connectors that read the same rows for a table with a key."""
    addresses = addresses_of(count) if count > 1 else []
    with Site(tmp_path, addresses) as site:
        driver = site.drive(until=100, every=3)
        assert told(driver, "began") == 0
        assert [told(driver, "transaction") for _ in range(4)] == [1, 2, 3, 4]
        kill(driver)

        driver = site.drive(until=5, every=3, read=True)
        assert told(driver, "began") in (4, 5), "what was flushed is there"
        assert told(driver, "views") == site.expected(5, READ)
        stats = told(driver, "stats")
        assert driver.wait(PATIENCE) == 0
        site.check_sink(5)
        if count > 1:
            assert [host["address"] for host in stats["hosts"]["hosts"]] == addresses
            reads = stats["hosts"]["reads"]
            assert reads["written"] > sum(reads.values()) / 2, "state is used where it is"
            shares = stats["hosts"]["hosts"]
            assert sum(share["processed_records"] for share in shares) == rows_taken_in(stats)
            assert all(share["bytes"] for share in shares)
            for index in range(count):
                assert any(site.hosts.directory(index).glob("batches/*/*.arrow")), index


def trouble(site: Site, driver: subprocess.Popen[str], chance: random.Random) -> str:
    """SIGKILL for somebody; a coordinator is not started again."""
    one = chance.randrange(2)
    what = chance.choice(["a host", "its Spark worker", "both hosts", "the coordinator", "it and a host"])
    if what in ("the coordinator", "it and a host"):
        kill(driver)
    if what in ("a host", "it and a host"):
        site.hosts.kill(one)
    elif what == "both hosts":
        site.hosts.kill(0, 1)
    elif what == "its Spark worker":
        site.hosts.kill_spark(one)
    return f"{what} (host {one})"


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(3600)
def test_whoever_is_killed_at_any_time_nothing_is_lost_or_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = seed_of_run()
    chance = random.Random(seed)
    with Site(tmp_path, addresses_of(2), seed=seed) as site:
        driver, last = site.drive(until=10_000, every=3), 0
        told(driver, "began")
        for _ in range(KILLS):
            last = told(driver, "transaction")
            time.sleep(2 * chance.random())
            done = trouble(site, driver, chance)
            with capsys.disabled():
                print(f"after transaction {last}: killed {done}", flush=True)
            if driver.poll() is not None:
                driver = site.drive(until=10_000, every=3)
                assert told(driver, "began") >= last, "what was flushed is there"
        last = told(driver, "transaction")
        kill(driver)
        driver = site.drive(until=last + 2)
        began = told(driver, "began")
        assert told(driver, "views") == site.expected(max(began, last + 2))
        assert driver.wait(PATIENCE) == 0
        site.check_sink(max(began, last + 2))
