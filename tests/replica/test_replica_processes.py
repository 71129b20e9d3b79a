"""Real replicas under load: stopped and continued, killed anywhere. The end is that of one pipeline alone."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.cli.exit_codes import ExitCode
from tests.jvm import kept_jvm
from tests.oracle.history import seed_of_run
from tests.replica.processes import LEASE, Replica, Site

FAILPOINTS = (
    "binding.uploaded:4",
    "binding.decided:4",
    "journal.step.synced:4",
    "engine.added:4",
    "journal.commit.synced:4",
    "shard.uploaded:4",
    "shard.appended:4",
    "output.before:4",
    "output.after:4",
)


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    found: list[Replica] = []
    yield found
    for replica in found:
        replica.kill()


def end(site: Site, running: Sequence[Replica]) -> None:
    """The outputs get everything; then all end in order, and nothing is left behind."""
    site.finish()
    for replica in running:
        replica.wait_until_it_runs()
    for replica in running:
        replica.stop()
    codes = [replica.code for replica in running]
    assert set(codes) == {ExitCode.DONE}, (codes, [replica.said[-2000:] for replica in running])
    assert site.leftover() == []


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(1200)
def test_replicas_are_stopped_continued_and_killed(tmp_path: Path, replicas: list[Replica]) -> None:
    seed = seed_of_run()
    chance = random.Random(seed)
    site = Site(tmp_path)
    site.begin()
    running = {name: Replica(site, name) for name in "abc"}
    replicas += running.values()
    site.wait_for(2)
    for life in range(2):
        name = "abc"[life % 3]
        running[name].signal(signal.SIGSTOP)  # the others run ahead, and take it for gone
        before = site.upper
        time.sleep(LEASE * (1 + chance.random()))
        site.wait_for(before + 1)
        running[name].signal(signal.SIGCONT)
        other = "abc"[(life + 1) % 3]
        time.sleep(chance.random())
        running[other].kill()
        running[other] = Replica(site, other)
        replicas.append(running[other])
        site.wait_for(site.upper + 2)
    end(site, list(running.values()))


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(1200)
def test_one_is_killed_at_every_step_and_another_goes_on(tmp_path: Path, replicas: list[Replica]) -> None:
    """Each takes over what the one before left in the middle of something."""
    site = Site(tmp_path)
    site.begin()
    with kept_jvm() as jvm:
        for index, failpoint in enumerate(FAILPOINTS):
            killed = Replica(site, "ab"[index % 2], failpoint, jvm=jvm)
            replicas.append(killed)
            assert killed.code == -signal.SIGKILL, (failpoint, killed.said[-2000:])
    last = [Replica(site, name) for name in "ab"]
    replicas += last
    end(site, last)
