"""SIGKILL at every step of a push and of a fetch: the place is always restorable, and the next goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.failpoints import FAILPOINTS
from penstock.sync.config import SyncConfig
from tests.stores import all_whole, commit, transactions
from tests.sync.places import Site, config_of, primary

POINTS = [point for point in FAILPOINTS if point.startswith("sync.")]
FETCHING = [point for point in POINTS if "fetched" in point]
TAKING_OVER = ["sync.taken-over", "sync.activated"]
PUSHING = [point for point in POINTS if point not in FETCHING + TAKING_OVER]

# What a process does until it is killed: the act and the site are given on its command line.
SCRIPT = """
import sys
from pathlib import Path
from penstock.sync.config import SyncConfig
from tests.sync.places import Site
act, root, config = sys.argv[1:]
site = Site(Path(root), SyncConfig.model_validate_json(config))
{"push": site.push, "pull": site.pull, "take over": lambda: site.following.take_over()}[act]()
"""


def killed(site: Site, act: str, point: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, act, str(site.root), site.config.model_dump_json()],
        env={**os.environ, "PENSTOCK_FAILPOINT": point},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -9, f"{point} was never reached: {done.stderr[-2000:]}"


def restored(site: Site, directory: Path) -> int:
    """The transaction of the newest checkpoint that a machine with nothing can fetch, every byte checked."""
    fresh = Site(directory, site.config)
    fresh.pull()
    found = transactions(all_whole(fresh.root))[-1]
    fresh.lose()
    return found


@pytest.fixture
def config(s3: str) -> SyncConfig:
    return config_of(s3, retention_min_count=2, retention_min_age=0)


@pytest.mark.parametrize("point", PUSHING)
def test_a_push_is_killed(tmp_path: Path, config: SyncConfig, point: str) -> None:
    site = primary(tmp_path / "primary", config)
    for number in (1, 2, 5):
        site.push(commit(site.store, number))
    commit(site.store, 9)
    killed(site, "push", point)
    listed = point in ("sync.catalogued", "sync.retired")
    assert restored(site, tmp_path / "fresh") == (9 if listed else 5)
    site.push()
    assert restored(site, tmp_path / "fresh") == 9
    assert site.transactions() == [5, 9]


@pytest.mark.parametrize("point", FETCHING)
def test_a_fetch_is_killed(tmp_path: Path, config: SyncConfig, point: str) -> None:
    site = primary(tmp_path / "primary", config)
    site.push(commit(site.store, 1))
    standby = Site(tmp_path / "standby", config)
    killed(standby, "pull", point)
    standby.pull()
    assert transactions(all_whole(standby.root)) == [1]
    site.push(commit(site.store, 5))
    if point != "sync.fetched":
        killed(standby, "pull", point)
        assert transactions(all_whole(standby.root)) == [1]
    standby.pull()
    assert transactions(all_whole(standby.root)) == [1, 5]


@pytest.mark.parametrize("point", TAKING_OVER)
def test_a_takeover_is_killed(tmp_path: Path, config: SyncConfig, point: str) -> None:
    site = primary(tmp_path / "primary", config)
    site.push(commit(site.store, 1))
    standby = Site(tmp_path / "standby", config.model_copy(update={"start_from_checkpoint": "latest"}))
    standby.following.fetch()
    killed(standby, "take over", point)
    assert restored(site, tmp_path / "fresh") == 1
    assert standby.following.is_marked
    standby.following.take_over()
    assert not standby.following.is_marked
    standby.push(commit(standby.store, 5))
    assert restored(site, tmp_path / "fresh") == 5
