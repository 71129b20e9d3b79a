"""A pipeline on hosts whose checkpoints are in an object store: whatever is lost comes from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.location import Location
from penstock.sync.model import keys_of, manifest_key
from penstock.sync.remote import remote_checkpoints, remote_manifest
from tests.hosts.running import PATIENCE, wait_until
from tests.hosts.site import Site, addresses_of, kill, told
from tests.servers import BUCKET, KEY, SECRET
from tests.sync.places import config_of

pytestmark = [pytest.mark.slow(minutes=6), pytest.mark.timeout(2400)]


def settings(url: str, folder: str, **more: Any) -> dict[str, Any]:
    """Nothing is copied by the clock; the newest checkpoint alone is kept there."""
    sync = {
        "bucket": f"{BUCKET}/{folder}",
        "endpoint": url,
        "access_key": KEY,
        "secret_key": SECRET,
        "start_from_checkpoint": "latest",
        "retention_min_count": 1,
        "retention_min_age": 0,
        **more,
    }
    return {
        "fault_tolerance": {"checkpoint_interval_secs": None},
        "storage": {"backend": {"name": "file", "config": {"sync": sync}}},
    }


@pytest.fixture
def site(tmp_path: Path, s3: str) -> Iterator[Site]:
    with Site(tmp_path, addresses_of(3), settings(s3, tmp_path.name), connected=False) as found:
        yield found


@pytest.fixture
def location(tmp_path: Path, s3: str) -> Location:
    config = config_of(s3, tmp_path.name)
    return Location(config, config.bucket)


def folders(location: Location) -> set[str]:
    return set(location.folders())


def kept(location: Location) -> set[str]:
    """The keys that the checkpoints of the place need."""
    found = {"owner.json", "catalog.json"}
    for entry in remote_checkpoints(location):
        found |= keys_of(remote_manifest(location, entry)) | {manifest_key(entry.id, entry.hosts)}
    return found


def test_disks_are_lost_and_hosts_come_and_go(site: Site, location: Location) -> None:
    driver = site.drive(until=4, push=[3], wait=True)
    assert told(driver, "pushed")
    assert told(driver, "views") == site.expected(4)
    assert folders(location) == {"coordinator", "host0", "host1", "host2"}
    assert set(location.keys("")) == kept(location)

    # Everything is lost, and there are two machines instead of three.
    site.end()
    site.lose()
    site.begin(addresses_of(2))
    driver = site.drive(until=6, push=[5], wait=True)
    assert told(driver, "began") == 3
    assert told(driver, "pushed")
    assert told(driver, "views") == site.expected(6)
    assert [entry.transaction for entry in remote_checkpoints(location)] == [5]
    assert folders(location) == {"coordinator", "host0", "host1"}
    assert set(location.keys("")) == kept(location), "what three hosts had is gone"

    # The coordinator is killed, and one host has a new disk: transaction 6 is only in the journal.
    kill(driver)
    site.replace(1)
    driver = site.drive(until=6)
    assert told(driver, "began") == 6
    assert told(driver, "views") == site.expected(6)
    assert driver.wait(PATIENCE) == 0
    assert any(site.hosts.directory(1).glob("batches/*/*.arrow"))

    # The other host has a new disk, and the checkpoint that was taken at the end is not in the store.
    site.replace(0)
    driver = site.drive(until=7)
    assert told(driver, "began") == 6
    assert told(driver, "views") == site.expected(7)
    assert driver.wait(PATIENCE) == 0

    # The same, on one machine alone.
    site.end()
    site.lose()
    driver = site.drive(until=5)
    assert told(driver, "began") == 5
    assert told(driver, "views") == site.expected(5)
    assert driver.wait(PATIENCE) == 0


def test_a_standby_on_hosts_takes_over_from_a_primary_under_load(tmp_path: Path, s3: str) -> None:
    sites = []
    for index, name in enumerate(("primary", "standby")):
        (tmp_path / name).mkdir()
        config = settings(s3, tmp_path.name, pull_interval=1)
        sites.append(Site(tmp_path / name, addresses_of(2, first=2 + 2 * index), config, connected=False))
    primary, standby = sites
    try:
        under_load = primary.drive(until=200, push=[*range(2, 200, 2)])
        assert told(under_load, "pushed")
        follower = standby.drive(until=6, standby=True)
        wait_until(lambda: told(follower, "followed") is not None, "that it follows")
        assert told(under_load, "pushed")
        assert follower.stdin is not None
        follower.stdin.write("\n")
        follower.stdin.flush()
        began = told(follower, "began")
        assert began % 2 == 0, "what was pushed"
        assert told(follower, "views") == standby.expected(max(began, 6))
        log = primary.root / "driver.log"
        wait_until(lambda: "took over" in log.read_text(), "that the primary knows")
        assert follower.wait(PATIENCE) == 0
    finally:
        for site in sites:
            site.end()
