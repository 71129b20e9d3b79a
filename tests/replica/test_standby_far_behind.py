"""A new generation that is far behind for long: neither it nor the leader takes more memory for that.

PENSTOCK_STANDBY_MINUTES says for how long; what was measured is printed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.cli.exit_codes import ExitCode
from penstock.shard.shard import Shard
from penstock.shard.state import STATE, State
from tests.replica.processes import GROUP, PATIENCE, Memory, Replica, Site

MINUTES = float(os.environ.get("PENSTOCK_STANDBY_MINUTES", "1"))

PYTHON_MB = 128
"""A driver may take so much more than after its warm-up: what it takes to merge a few batches at once."""

TOTAL_MB = 640
"""And so much more with its JVM and its workers, whose heap grows to its limit whatever is done."""

STATE_BYTES = 64 << 10
"""So much the state of the binding may be, which every transaction writes."""

GENTLY = 1.0
"""Rows come every so many seconds while both run: on one machine, which has to be faster than that."""

LEAST_LAG = 30 * MINUTES
"""So many transactions it is behind at least."""


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    found: list[Replica] = []
    yield found
    for replica in found:
        replica.signal(signal.SIGCONT)
        replica.kill()


@dataclass
class Watched:
    """The memory of a replica over time."""

    replica: Replica
    samples: list[Memory] = field(default_factory=list)
    warm: int = 0
    """So many samples were taken before it was warm."""

    def look(self) -> Memory:
        assert self.replica.runs, self.replica.said[-2000:]
        self.samples.append(self.replica.memory)
        return self.samples[-1]

    def is_warm(self) -> None:
        self.warm = len(self.samples)

    @property
    def growth(self) -> tuple[int, int]:
        """By how much it grew since it was warm, in MB: its driver, and all of it."""
        before, after = self.samples[: self.warm], self.samples[self.warm :]
        python = max(m.python for m in after) - max(m.python for m in before)
        return python, max(m.total for m in after) - max(m.total for m in before)


class Report:
    """Looks at both every few seconds, and prints what it sees."""

    def __init__(self, site: Site, capsys: pytest.CaptureFixture[str], **watched: Watched) -> None:
        self._site, self._capsys, self._watched = site, capsys, watched
        self._began = time.monotonic()
        self.lag = 0
        self.state = 0

    def watch(self, what: str, seconds: float, until: float = 0.0) -> None:
        """For so long; with `until` as soon as it is no further behind than that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(3.0, seconds))
            lag = self._look(what)
            if until and lag <= until:
                return

    def _look(self, what: str) -> int:
        state = _binding(self._site)
        decided, size = state.upper - 1, len(STATE.encode(state))
        lag = decided - min(reader.since for reader in state.readers.values())  # of what is held back
        self.lag, self.state = max(self.lag, lag), max(self.state, size)
        shown = "; ".join(f"{name} {watched.look()}" for name, watched in self._watched.items())
        with self._capsys.disabled():
            print(
                f"{time.monotonic() - self._began:4.0f} s, {what}: {decided} transactions, the standby"
                f" {lag} behind; {shown}; the state of the group {size} bytes",
                flush=True,
            )
        return lag


def _binding(site: Site) -> State:
    place = site.place.opened()
    try:
        return Shard.open(place, f"{GROUP}/binding").machine.state
    finally:
        place.close()


@pytest.mark.slow(minutes=2 + MINUTES)
@pytest.mark.timeout(900 + 180 * MINUTES)
def test_one_that_is_far_behind(
    tmp_path: Path, replicas: list[Replica], capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, every=GENTLY, grows=True)
    site.begin()
    leader = Replica(site, "leader")
    replicas.append(leader)
    site.wait_for(3)
    standby = Replica(site, "standby", generation=1)
    replicas.append(standby)
    deadline = time.monotonic() + PATIENCE
    while (told := site.told(1)) is None or told.lag_transactions > 10:
        assert time.monotonic() < deadline, standby.said[-2000:]
        time.sleep(0.2)
    watched = {"leader": Watched(leader), "standby": Watched(standby)}
    report = Report(site, capsys, **watched)
    report.watch("warming up", 30)
    for one in watched.values():
        one.is_warm()
    site.every = 0.1
    standby.signal(signal.SIGSTOP)
    report.watch("the standby is stopped", 60 * MINUTES)
    standby.signal(signal.SIGCONT)
    site.every = GENTLY
    report.watch("it catches up", PATIENCE + 120 * MINUTES, until=5)
    report.watch("it keeps up", 6)
    assert leader.runs
    deadline = time.monotonic() + PATIENCE
    while (promoted := site.promote(1)).returncode != ExitCode.DONE:
        assert time.monotonic() < deadline, promoted.stderr
    site.finish(1)
    grown = {name: one.growth for name, one in watched.items()}
    with capsys.disabled():
        print(f"up to {report.lag} transactions behind; grown by MB (driver, all): {grown}")
    assert report.lag >= LEAST_LAG
    assert report.state < STATE_BYTES
    for python, total in grown.values():
        assert python < PYTHON_MB
        assert total < TOTAL_MB
