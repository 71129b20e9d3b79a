"""Old checkpoints go from the object store, and never what a kept one needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.check import read_manifest
from penstock.errors import FencedError, SyncError
from penstock.sync.config import SyncConfig
from penstock.sync.model import REMOTE_CATALOG, keys_of, manifest_key
from penstock.sync.ownership import read_catalog
from penstock.sync.push import Push
from penstock.sync.retention import expired
from tests.disks import IdleDisk, using
from tests.stores import all_whole, commit, transactions
from tests.sync.places import Site, config_of, instead, overwrite, primary


@pytest.fixture(autouse=True)
def _idle() -> Iterator[None]:
    with using(IdleDisk()):
        yield


@pytest.fixture
def site(tmp_path: Path, s3: str) -> Site:
    return primary(tmp_path / "primary", config_of(s3, retention_min_count=2, retention_min_age=0))


def test_by_count(site: Site, tmp_path: Path) -> None:
    for number in range(1, 7):
        site.push(commit(site.store, number))
    assert site.transactions() == [5, 6]
    kept = site.store.catalog.checkpoints[-2:]
    needed = {key for entry in kept for key in keys_of(read_manifest(site.root, entry))}
    needed |= {manifest_key(entry.id) for entry in kept}
    assert set(site.location.keys("")) == needed | {"owner.json", "catalog.json"}
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert transactions(all_whole(other.root)) == [6]


def test_by_age(site: Site) -> None:
    now = datetime.now(UTC)
    entries = [
        replace(commit(site.store, number), at=now - timedelta(days=days))
        for number, days in enumerate((9, 5, 3, 1), 1)
    ]

    def gone(count: int, age: int) -> list[int]:
        config = SyncConfig.of({"bucket": "b", "retention_min_count": count, "retention_min_age": age})
        return [entry.transaction for entry in expired(entries, config, now)]

    assert gone(1, 4) == [1, 2]
    assert gone(3, 4) == [1]
    assert gone(4, 4) == []
    assert gone(9, 0) == []
    assert gone(1, 0) == [1, 2, 3]
    assert gone(0, 1) == [1, 2, 3]  # the newest always stays


def test_nothing_is_deleted_while_a_kept_manifest_cannot_be_read(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        site.push(commit(site.store, number))
    kept = site.store.newest
    site.location.delete([manifest_key(kept.id)])
    before = set(site.location.keys(""))
    with caplog.at_level(logging.WARNING):
        site.push(commit(site.store, 3))
    assert site.transactions() == [1, 2, 3]
    assert before <= set(site.location.keys(""))
    assert "nothing was deleted" in caplog.text


def test_what_an_unreadable_one_had_stays(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2):
        site.push(commit(site.store, number))
    first = site.store.catalog.checkpoints[1]
    keys = keys_of(read_manifest(site.root, first))
    push = Push(site.root, site.ownership, site.config)
    push.run(site.store.newest)
    site.location.delete([manifest_key(first.id)])
    push.run(commit(site.store, 3))
    assert site.transactions() == [2, 3]
    assert keys <= set(site.location.keys(""))
    assert "are left" in caplog.text
    site.push()  # another process: it looks at everything once
    needed = {
        key
        for entry in site.store.catalog.checkpoints[-2:]
        for key in keys_of(read_manifest(site.root, entry))
    }
    assert not (keys - needed) & set(site.location.keys(""))


def test_what_was_deleted_is_sent_again_when_it_is_needed(site: Site, tmp_path: Path) -> None:
    store = site.store
    push = Push(site.root, site.ownership, site.config)
    for number in (1, 3, 5):
        push.run(commit(store, number))
    push.run(commit(store, 6, 0, 1))  # batches that only the first one had
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert transactions(all_whole(other.root)) == [6]


def test_the_catalog_has_the_epoch_of_who_wrote_it(site: Site) -> None:
    for number in (1, 2, 3):
        site.push(commit(site.store, number))
    catalog, version = read_catalog(site.location)
    assert catalog is not None
    assert version is not None
    assert catalog.epoch == 1
    assert REMOTE_CATALOG.parse(version.data, "x") == catalog


def test_what_pushes_left_that_were_cut_off_goes(site: Site) -> None:
    site.push(commit(site.store, 1))
    for key in ("batches/trace-0/left-over.arrow", "checkpoints/left/state.json"):
        overwrite(site.location, key, b"left over")
    site.push(commit(site.store, 2))
    assert not [key for key in site.location.keys("") if "left" in key]
    assert site.transactions() == [1, 2]


def test_a_store_that_deletes_nothing_can_be_pushed_to(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def refuses(*_: object) -> None:
        raise SyncError("access denied")

    with instead(site.location, "delete", refuses):
        for number in (1, 2, 3, 4):
            site.push(commit(site.store, number))
    assert site.transactions() == [3, 4]
    assert "could not be let go of" in caplog.text
    site.push(commit(site.store, 5))
    kept = site.store.catalog.checkpoints[-2:]
    needed = {key for entry in kept for key in keys_of(read_manifest(site.root, entry))}
    assert set(site.location.keys("batches")) == {key for key in needed if key.startswith("batches")}


def test_who_was_fenced_deletes_nothing_of_the_next_holder(site: Site, tmp_path: Path) -> None:
    site.push(commit(site.store, 1))
    standby = Site(tmp_path / "standby", site.config)
    standby.pull()
    entry = commit(site.store, 2)

    def overtaken(before: Any, folder: str) -> Any:
        if standby.ownership.claim.epoch == 0:
            standby.ownership.take_over()
            standby.push(commit(standby.store, 9))
        return before(folder)

    with instead(site.location, "keys", overtaken), pytest.raises(FencedError):
        site.push(entry)
    fresh = Site(tmp_path / "fresh", site.config)
    fresh.pull()
    assert transactions(all_whole(fresh.root)) == [9]
