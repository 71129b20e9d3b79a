"""A checkpoint that was pushed can be fetched anywhere, byte by byte the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.check import check, read_manifest
from penstock.checkpoint.model import CATALOG_FILE, MANIFEST, Catalog, Entry, batch_path
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import DamagedError, FencedError, StateError, SyncError
from penstock.journal.journal import first_record
from penstock.sync.model import (
    CLAIM_FILE,
    REMOTE_CATALOG,
    RemoteCatalog,
    batches_of,
    manifest_key,
    manifest_path,
)
from penstock.sync.remote import find, remote_checkpoints
from tests.disks import IdleDisk, files_of, using
from tests.stores import all_whole, commit, transactions
from tests.sync.places import Site, config_of, instead, overwrite, primary


@pytest.fixture(autouse=True)
def _idle() -> Iterator[None]:
    with using(IdleDisk()):
        yield


@pytest.fixture
def site(tmp_path: Path, s3: str) -> Site:
    return primary(tmp_path / "primary", config_of(s3))


@pytest.fixture
def other(tmp_path: Path, site: Site) -> Site:
    """A machine that has nothing."""
    return Site(tmp_path / "other", site.config)


def test_what_was_pushed_can_be_fetched(site: Site, other: Site) -> None:
    first, second = (commit(site.store, number) for number in (1, 2))
    site.push(first)
    site.push(second)
    assert site.transactions() == [1, 2]
    copied = other.pull()
    assert copied.files_done == copied.files == 4  # two batches, the state, a waiting change
    assert transactions(all_whole(other.root)) == [2]
    assert (other.store.catalog.pipeline, other.store.catalog.owner) == ("p", "owner")
    assert first_record(other.root / "journal") == 20
    same = {path for path in files_of(other.root) if path.startswith(("batches/", "checkpoints/"))}
    assert all((other.root / path).read_bytes() == (site.root / path).read_bytes() for path in same)
    assert other.store.restore(deep=True).checked.saved.transaction == 2


def test_one_is_fetched_by_its_id(site: Site, other: Site) -> None:
    for number in (1, 2):
        site.push(commit(site.store, number))
    other.pull(remote_checkpoints(site.location)[0].id)
    assert transactions(all_whole(other.root)) == [1]
    assert find(site.location, "0192f3c0-0000-7000-8000-000000000000", site.config) is None


def test_only_what_is_new_is_sent(site: Site) -> None:
    site.push(commit(site.store, 5))
    sent = site.push(commit(site.store, 6))
    assert sent.files == 4  # one batch, the state, a waiting change, the manifest
    again = site.push()
    assert again.files == 3
    assert site.transactions() == [5, 6]


def test_only_what_is_new_is_fetched(site: Site, other: Site) -> None:
    site.push(commit(site.store, 5))
    other.pull()
    site.push(commit(site.store, 6))
    assert other.pull().files == 3
    assert transactions(all_whole(other.root)) == [5, 6]
    assert other.pull().files == 0


def test_nothing_was_ever_pushed(site: Site) -> None:
    assert find(site.location, "latest", site.config) is None
    assert remote_checkpoints(site.location) == ()


def test_the_manifest_comes_after_all_that_it_lists_and_the_catalog_last(site: Site) -> None:
    order: list[str] = []

    def recorded(before: Any, key: str, *rest: Any) -> Any:
        order.append(key)
        return before(key, *rest)

    push_location = site.location
    with (
        instead(push_location, "upload", recorded),
        instead(push_location, "create", recorded),
        instead(push_location, "replace", recorded),
    ):
        site.push(commit(site.store, 1))
    kinds = [key.partition("/")[0] if not key.endswith("manifest.json") else "manifest" for key in order]
    assert kinds == [
        "owner.json",
        "batches",
        "batches",
        "checkpoints",
        "checkpoints",
        "manifest",
        "catalog.json",
    ]


def test_a_batch_that_is_damaged_here_is_not_sent(site: Site) -> None:
    entry = commit(site.store, 3)
    manifest = read_manifest(site.root, entry)
    trace, name = min(manifest.batches)
    path = batch_path(site.root, trace, name)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedError, match="is damaged"):
        site.push(entry)
    assert site.transactions() == []


def test_a_checkpoint_that_lacks_an_object_is_passed_over(
    site: Site, other: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 5):
        site.push(commit(site.store, number))
    missing = next(iter(batches_of(read_manifest(site.root, site.store.newest), site.root))).key
    site.location.delete([missing])
    with caplog.at_level(logging.WARNING):
        other.pull()
    assert transactions(all_whole(other.root)) == [1]
    assert "is passed over" in caplog.text
    assert missing in caplog.text
    with pytest.raises(DamagedError, match=missing):
        find(site.location, site.store.newest.id, site.config)


def test_a_catalog_that_came_before_what_it_lists(site: Site, other: Site) -> None:
    """As in a copy of the place that lags behind."""
    site.push(commit(site.store, 1))
    site.location.delete([manifest_key(site.store.newest.id)])
    with pytest.raises(SyncError, match="no checkpoint is whole") as caught:
        other.pull()
    assert "manifest.json is missing" in str(caught.value)


@pytest.mark.parametrize("key", ["catalog.json", "owner.json"])
def test_a_damaged_document_is_refused_by_name(site: Site, key: str) -> None:
    site.push(commit(site.store, 1))
    found = site.location.read(key)
    assert found is not None
    overwrite(site.location, key, found.data.replace(b"owner", b"0wner"))
    with pytest.raises(DamagedError, match=key):
        site.push()


@pytest.mark.parametrize("bad", ["../../outside", "/etc/x", "a/b", "..", ""])
def test_a_manifest_that_leads_elsewhere_is_refused(site: Site, other: Site, bad: str) -> None:
    """Whoever can write to a bucket must not be able to write anywhere on this machine."""
    entry = commit(site.store, 1)
    manifest = read_manifest(site.root, entry)
    content = next(iter(manifest.files.values()))
    traces = next(iter(manifest.traces.values()))
    size = next(iter(traces.values()))
    for strange in (
        replace(manifest, traces={bad: traces}),
        replace(manifest, traces={"trace": {bad: size}}),
        replace(manifest, files={bad: content}),
        replace(manifest, journal=bad),
    ):
        listed = Entry.of(strange, MANIFEST.write(manifest_path(site.root, entry.id), strange))
        site.location.upload(manifest_key(entry.id), manifest_path(site.root, entry.id))
        catalog = RemoteCatalog("p", "owner", 1, (listed,))
        overwrite(site.location, "catalog.json", REMOTE_CATALOG.encode(catalog))
        with pytest.raises(SyncError, match="is no name of a file of a checkpoint"):
            other.pull()


def test_an_interrupted_fetch_goes_on_where_it_ended(site: Site, other: Site) -> None:
    site.push(commit(site.store, 7))
    asked: list[tuple[Any, ...]] = []
    cuts = [True, False]  # from the end: the second that comes

    def fails_later(before: Any, *whole: Any) -> Any:
        try:
            cut = cuts.pop()
        except IndexError:
            cut = False
        if cut:
            raise SyncError("the line was cut")
        return before(*whole)

    with instead(other.location, "whole", fails_later), pytest.raises(SyncError, match="cut"):
        other.pull()
    assert (other.root / CATALOG_FILE).exists()
    done = {path for path in files_of(other.root) if path.endswith(".arrow")}
    assert done
    asked.clear()
    with instead(other.location, "whole", lambda before, *whole: asked.append(whole) or before(*whole)):
        other.pull()
    assert len(asked) == 4 - len(done)
    assert transactions(all_whole(other.root)) == [7]


def test_a_part_of_a_file_is_not_fetched_again(site: Site, other: Site) -> None:
    entry = commit(site.store, 7)
    site.push(entry)
    piece = max(batches_of(read_manifest(site.root, entry), other.root), key=lambda p: p.content.bytes)
    piece.path.parent.mkdir(parents=True)
    whole = (site.root / piece.path.relative_to(other.root)).read_bytes()
    piece.path.with_name(f"{piece.path.name}.part").write_bytes(whole[:10])
    asked: list[tuple[Any, ...]] = []
    (other.root / "checkpoints").mkdir()
    with instead(other.location, "part", lambda before, *part: asked.append(part) or before(*part)):
        CheckpointStore(other.root).save(Catalog("p", "owner"))  # as an interrupted fetch leaves it
        other.pull()
    assert (piece.key, 10, len(whole)) in asked
    assert transactions(all_whole(other.root)) == [7]


def test_a_wrong_byte_on_the_way_is_fetched_again(
    site: Site, other: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.push(commit(site.store, 2))
    wrong = [1]

    def wrong_once(before: Any, *whole: Any) -> list[bytes]:
        data = b"".join(before(*whole))
        try:
            return [bytes([data[0] ^ wrong.pop()]) + data[1:]]
        except IndexError:
            return [data]

    with instead(other.location, "whole", wrong_once):
        other.pull()
    assert "it is fetched again" in caplog.text
    assert transactions(all_whole(other.root)) == [2]


def test_bytes_that_stay_wrong_are_refused(site: Site, other: Site) -> None:
    site.push(commit(site.store, 2))
    with (
        instead(other.location, "whole", lambda before, *whole: [bytes(len(b"".join(before(*whole))))]),
        pytest.raises(DamagedError, match="is damaged: expected"),
    ):
        other.pull()
    assert CheckpointStore(other.root).read() is None


def test_large_files_are_fetched_in_parts(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sync.fetching._STEP", 16)
    site = primary(tmp_path / "primary", config_of(s3, multi_thread_cutoff="10", multi_thread_streams=3))
    site.push(commit(site.store, 9))
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert transactions(all_whole(other.root)) == [9]


def test_what_is_being_pushed_is_not_let_go_of(site: Site) -> None:
    store = site.store
    entry = commit(store, 1)
    for number in (2, 3, 4):
        commit(store, number)
    with store.in_use(entry):
        store.retire(1)
        assert [e.transaction for e in store.catalog.checkpoints] == [1, 4]
        check(site.root, entry, deep=True)
        with pytest.raises(StateError, match="being copied"):
            store.delete(entry)
    store.retire(1)
    assert [e.transaction for e in store.catalog.checkpoints] == [4]
    with pytest.raises(StateError, match="no checkpoint"), store.in_use(entry):
        pass


def test_what_was_remembered_is_beside_the_catalog(site: Site) -> None:
    entry: Entry = commit(site.store, 1)
    site.push(entry)
    assert (site.root / CLAIM_FILE).exists()
    claim = site.ownership.claim
    assert (claim.epoch, claim.location) == (1, site.location.label)


def test_an_object_of_the_right_size_that_is_damaged_is_passed_over_too(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 5):
        site.push(commit(site.store, number))
    piece = next(iter(batches_of(read_manifest(site.root, site.store.newest), site.root)))
    overwrite(site.location, piece.key, bytes(piece.content.bytes))
    follower = Site(tmp_path / "f", site.config.model_copy(update={"start_from_checkpoint": "latest"}))
    followed = follower.following.fetch()
    assert followed is not None
    assert followed.transaction == 1
    assert piece.key in caplog.text
    assert transactions(all_whole(follower.root)) == [1]


def test_a_store_that_knows_no_ranges(
    tmp_path: Path, strict_s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sync.fetching._STEP", 16)
    site = primary(tmp_path / "primary", config_of(strict_s3, multi_thread_cutoff="10"))
    site.push(commit(site.store, 9))
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert transactions(all_whole(other.root)) == [9]


def test_the_same_checkpoint_in_two_places_has_two_owners(tmp_path: Path, s3: str) -> None:
    """Two pipelines were seeded with one checkpoint, and one of them pushed it before anything new."""
    seed = primary(tmp_path / "seed", config_of(s3))
    seed.push(commit(seed.store, 1))
    seeded = {"read_bucket": seed.config.bucket, "start_from_checkpoint": "latest"}
    config = config_of(s3, **seeded)
    first = Site(tmp_path / "first", config, pipeline="first")
    first.following.take_over()
    second = Site(tmp_path / "second", config, pipeline="second")
    second.following.fetch()
    assert first.store.catalog.owner != second.store.catalog.owner
    first.owner = first.store.catalog.owner
    first.push()
    second.following.take_over()
    assert second.store.catalog.owner == first.owner
    with pytest.raises(FencedError):
        first.push()
