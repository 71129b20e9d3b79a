"""Real processes append to one shard; they are stopped, continued and killed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.shard.keeping import Keeper
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.writer import ShardWriter
from tests.crash.shard import LEASE, SCHEMA, changes_at
from tests.shard.processes import Process, end_all, stop_without_lock, upper, wait_for
from tests.shard.rows import counted, ticking

UNTIL = 80


@pytest.fixture(autouse=True)
def _processes() -> Iterator[None]:
    yield
    end_all()


def check(config: PlaceConfig) -> None:
    """The shard holds what one writer would have written, and the store nothing else."""
    place = config.opened()
    shard = Shard.open(place, "s", SCHEMA, lease=1e-9)
    expected: Counter[tuple[int, str]] = Counter()
    for time_ in range(UNTIL):
        for key, value, _, weight in changes_at(time_):
            expected[key, value] += weight
    assert shard.upper == UNTIL
    assert counted(shard.snapshot(UNTIL - 1)) == +expected
    keeper = Keeper(shard, ShardWriter(shard, "test"), clock=ticking())
    for _ in range(6):  # it has to see twice, one after the other, that the dead do not move
        keeper.keep()
    state = shard.machine.refresh()
    assert set(place.blobs.keys("s/parts")) == state.keys
    assert len(place.log.numbers("s")) < 20
    place.close()


@pytest.mark.parametrize(
    ("config", "writers"),
    [("directory", 2), ("sqlite", 3), ("postgres", 2), ("bucket", 3)],
    indirect=["config"],
)
def test_one_is_stopped_while_the_others_run_ahead(config: PlaceConfig, writers: int) -> None:
    processes = [Process("shard", config, UNTIL) for _ in range(writers)]
    wait_for(config, 5)
    stop_without_lock(processes[0], config)
    before = upper(config)
    wait_for(config, min(before + 30, UNTIL))
    time.sleep(LEASE * 1.5)  # the others take it for gone
    processes[0].signal(signal.SIGCONT)
    said = [process.ended() for process in processes]
    assert [process.code for process in processes] == [0] * writers
    appended = sum(line.endswith("appended") for lines in said for line in lines)
    assert appended == UNTIL
    check(config)


@pytest.mark.parametrize("config", ["directory"], indirect=True)
@pytest.mark.parametrize(
    "failpoint", ["shard.uploaded:3", "shard.appended:3", "shard.merged", "shard.deleted"]
)
def test_one_is_killed(config: PlaceConfig, failpoint: str) -> None:
    """Between the upload and the append, between the append and its answer, and while it merges."""
    killed = Process("shard", config, UNTIL, failpoint)
    wait_for(config, 1)  # on a busy machine the other one might do all of it alone
    other = Process("shard", config, UNTIL)
    killed.ended()
    assert killed.code == -signal.SIGKILL or "uploaded" not in failpoint, "it did not get there"
    other.ended()
    assert other.code == 0
    check(config)


def test_all_are_killed_and_others_go_on(tmp_path: Path) -> None:
    config = PlaceConfig(str(tmp_path))
    for life in range(6):
        processes = [Process("shard", config, UNTIL) for _ in range(2)]
        wait_for(config, 10 * life + 5)
        for process in processes:
            process.signal(signal.SIGKILL)
            process.ended()
    last = Process("shard", config, UNTIL)
    last.ended()
    assert last.code == 0
    check(config)
