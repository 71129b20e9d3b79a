"""A cut-over of real processes under load, in which the old leader dies with a transaction in its hands."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.exit_codes import ExitCode
from tests.replica.follower import Follower
from tests.replica.processes import GROUPS, PATIENCE, Replica, Site


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    found: list[Replica] = []
    yield found
    for replica in found:
        replica.kill()


def until(condition: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


class Prefixes:
    """Rows come in order, so that the sums are at any time those of the first rows of each group: by the old
    program, and from one transaction on by the new one."""

    def __init__(self) -> None:
        self.times = 1
        self.counted = 0

    def __call__(self, rows: dict[Any, tuple[Any, ...]]) -> None:
        counted = sum(count for _, count, _ in rows.values())
        assert counted >= self.counted, "rows went away"
        self.counted = counted
        found = {(g, count, total) for g, count, total in rows.values()}
        if found != self._expected(rows, self.times):
            assert (self.times, found) == (1, self._expected(rows, 2)), "it is neither the old nor the new"
            self.times = 2

    @staticmethod
    def _expected(rows: dict[Any, tuple[Any, ...]], times: int) -> set[tuple[int, int, int]]:
        return {
            (g, count, times * sum(range(g, g + count * GROUPS, GROUPS))) for g, count, _ in rows.values()
        }


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dies", [False, True], ids=["which goes well", "and is killed, too"])
def test_the_leader_is_killed_and_a_changed_program_takes_over(
    tmp_path: Path, replicas: list[Replica], capsys: pytest.CaptureFixture[str], dies: bool
) -> None:
    site = Site(tmp_path, every=0.3)  # so that a busy machine keeps up
    prefixes = Prefixes()
    reader = Follower(site.place.uri, "sums", prefixes)
    site.begin()
    now = tmp_path / "now"
    old = Replica(site, "old", "shard.uploaded/sums", after=now)
    replicas.append(old)
    site.wait_for(3)
    new = Replica(site, "new", "replica.fenced" if dies else "", generation=1)
    replicas.append(new)
    until(lambda: (told := site.told(1)) is not None and told.ready, f"it is not ready: {new.said[-2000:]}")
    now.touch()
    assert old.code == -signal.SIGKILL, old.said[-2000:]
    upper, decided = site.upper, site.decided
    assert upper <= decided, "it died before it could write what was decided"
    until(lambda: (told := site.told(1)) is not None and told.lag_transactions == 0, "the new one holds it")
    assert site.upper == upper, "the new one writes nothing yet"
    began = time.monotonic()
    promoted = site.promote(1)
    assert promoted.returncode == ExitCode.DONE, promoted.stderr
    assert "generation 1 of shop runs" in promoted.stdout
    if dies:
        assert new.code == -signal.SIGKILL, new.said[-2000:]
        assert site.upper == upper, "nothing was written"
        new = Replica(site, "new", generation=1)
        replicas.append(new)
    site.wait_for(decided + 5)
    assert prefixes.times == 2
    pause = reader.longest_pause(began)
    back = Replica(site, "old")  # too late
    replicas.append(back)
    assert back.code == ExitCode.FAILED, back.said[-2000:]
    assert "generation 1 of the group shop took over" in back.said
    site.finish(1)
    until(lambda: prefixes.counted == site.rows, "the reader missed something")
    reader.close()
    with capsys.disabled():
        print(
            f"\nthe leader died with transaction {upper} decided and not written; a reader that polls saw"
            f" {reader.transactions} transactions with changes, each once; its longest pause since then was"
            f" {pause:.2f} s{', with a start of Spark' if dies else ''}"
        )
    new.stop()
    assert new.code == ExitCode.DONE, new.said[-2000:]
