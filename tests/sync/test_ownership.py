"""A place in an object store has one writer, and who lost it can do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FencedError, NotOwnerError, SyncError
from penstock.storage.location import Location
from penstock.sync.model import OWNER_KEY
from penstock.sync.ownership import Ownership, honours_conditions, read_catalog, read_owner
from penstock.sync.push import Push
from tests.disks import IdleDisk, using
from tests.stores import all_whole, commit, transactions
from tests.sync.places import Site, config_of, instead, primary


@pytest.fixture(autouse=True)
def _idle() -> Iterator[None]:
    with using(IdleDisk()):
        yield


@pytest.fixture
def site(tmp_path: Path, s3: str) -> Site:
    site = primary(tmp_path / "primary", config_of(s3))
    site.push(commit(site.store, 1))
    return site


@pytest.fixture
def standby(tmp_path: Path, site: Site) -> Site:
    standby = Site(tmp_path / "standby", site.config, pipeline="p-standby")
    standby.pull()
    return standby


def test_an_intruder_is_refused_and_the_owner_unaffected(site: Site, tmp_path: Path) -> None:
    intruder = primary(tmp_path / "intruder", site.config, pipeline="intruder", owner="somebody else")
    with pytest.raises(NotOwnerError, match="belongs to the pipeline p, and intruder may not"):
        intruder.push(commit(intruder.store, 9))
    site.push(commit(site.store, 2))
    assert site.transactions() == [1, 2]


def test_a_renamed_pipeline_keeps_its_place(site: Site) -> None:
    site.pipeline = "renamed"
    site.push(commit(site.store, 2))
    owner = read_owner(site.location)
    assert owner is not None
    assert (owner.pipeline, owner.epoch) == ("renamed", 1)


def test_who_takes_over_writes_and_the_one_before_is_fenced(site: Site, standby: Site) -> None:
    assert standby.ownership.take_over().epoch == 2
    with pytest.raises(FencedError, match=r"another run of p-standby took over .* \(epoch 2\)"):
        site.push(commit(site.store, 2))
    with pytest.raises(FencedError):
        site.ownership.refuse_if_fenced()
    standby.push(commit(standby.store, 5))
    assert standby.transactions() == [1, 5]
    standby.ownership.refuse_if_fenced()


def test_taking_over_twice_is_taking_over_once(standby: Site) -> None:
    assert [standby.ownership.take_over().epoch for _ in range(2)] == [2, 2]


def test_a_copy_that_did_not_take_over_may_not_write(standby: Site) -> None:
    with pytest.raises(FencedError):
        standby.push(commit(standby.store, 5))


def test_a_push_that_was_under_way_when_another_took_over_is_not_seen(site: Site, standby: Site) -> None:
    """The one before has checked that the place is its own, and has sent everything but the catalog."""
    late = Push(site.root, site.ownership, site.config)

    def taken_over_first(before: Any, *arguments: Any) -> Any:
        if standby.ownership.claim.epoch == 0:
            standby.ownership.take_over()
        return before(*arguments)

    entry = commit(site.store, 2)
    location = late._ownership.location
    with instead(location, "replace", taken_over_first), pytest.raises(FencedError):
        late.run(entry)
    catalog, _ = read_catalog(site.location)
    assert catalog is not None
    assert (catalog.epoch, [e.transaction for e in catalog.checkpoints]) == (2, [1])
    standby.push(commit(standby.store, 3))
    assert standby.transactions() == [1, 3]


def test_a_crash_between_the_record_and_the_catalog_is_made_good(site: Site, standby: Site) -> None:
    with (
        instead(type(standby.ownership), "_stamp", lambda before, *rest: _crash()),
        pytest.raises(RuntimeError, match="crash"),
    ):
        standby.ownership.take_over()
    with pytest.raises(FencedError):
        site.push(commit(site.store, 2))
    standby.ownership.take_over()
    catalog, _ = read_catalog(site.location)
    assert catalog is not None
    assert catalog.epoch == 2


def _crash() -> None:
    raise RuntimeError("crash")


def test_an_answer_that_was_lost_is_no_refusal(site: Site) -> None:
    """The write was done, and a second attempt of it finds the condition gone."""
    found = site.location.read(OWNER_KEY)
    assert found is not None
    assert site.location.replace(OWNER_KEY, found.data + b" ", found)
    assert site.location.replace(OWNER_KEY, found.data + b" ", found)
    assert not site.location.replace(OWNER_KEY, found.data, found)
    assert site.location.create("new", b"1")
    assert site.location.create("new", b"1")
    assert not site.location.create("new", b"2")


def test_a_place_that_was_emptied_is_not_begun_anew_by_itself(site: Site) -> None:
    site.location.delete(list(site.location.keys("")))
    with pytest.raises(SyncError, match=r"owner\.json is gone"):
        site.push()
    (site.root / "sync.json").unlink()
    site.push()
    assert site.transactions() == [1]


def test_two_that_begin_at_once_have_one_winner(tmp_path: Path, s3: str) -> None:
    config = config_of(s3)
    first = primary(tmp_path / "first", config, pipeline="first", owner="1")
    second = primary(tmp_path / "second", config, pipeline="second", owner="2")

    def other_is_first(before: Any, *arguments: Any) -> Any:
        if read_owner(second.location) is None:
            second.ownership.hold()
        return before(*arguments)

    with instead(first.location, "create", other_is_first), pytest.raises(NotOwnerError, match="second"):
        first.push(commit(first.store, 1))
    second.push(commit(second.store, 2))
    assert second.transactions() == [2]


def test_the_store_of_the_tests_honours_conditions(site: Site) -> None:
    assert honours_conditions(site.location)
    assert not [key for key in site.location.keys("") if key.startswith("probe")]


def test_a_store_that_ignores_conditions_is_not_taken_over(tmp_path: Path, strict_s3: str) -> None:
    site = primary(tmp_path / "primary", config_of(strict_s3))
    site.push(commit(site.store, 1))
    site.push(commit(site.store, 2))
    assert site.transactions() == [1, 2]
    assert not honours_conditions(site.location)
    standby = Site(tmp_path / "standby", site.config)
    standby.pull()
    assert transactions(all_whole(standby.root)) == [2]
    with pytest.raises(SyncError, match="ignores conditional writes"):
        standby.ownership.take_over()
    site.push(commit(site.store, 3))
    site.location.delete([OWNER_KEY])
    standby.ownership.take_over()
    with pytest.raises(FencedError):
        site.push(commit(site.store, 4))


def test_a_run_that_was_lost_before_it_pushed_anything_locks_nobody_out(tmp_path: Path, s3: str) -> None:
    config = config_of(s3)
    lost = primary(tmp_path / "lost", config, owner="1")
    lost.ownership.hold()
    again = primary(tmp_path / "again", config, owner="2")
    again.push(commit(again.store, 1))
    assert again.transactions() == [1]
    with pytest.raises(FencedError):
        lost.push(commit(lost.store, 2))
    stranger = primary(tmp_path / "stranger", config, pipeline="stranger", owner="3")
    with pytest.raises(NotOwnerError):
        stranger.push()


def test_a_first_push_that_comes_late_is_not_seen(tmp_path: Path, s3: str) -> None:
    config = config_of(s3)
    lost = primary(tmp_path / "lost", config, owner="1")
    again = primary(tmp_path / "again", config, owner="2")
    entry = commit(lost.store, 1)

    def overtaken(before: Any, key: str, *rest: Any) -> Any:
        if key == "catalog.json" and again.ownership.claim.epoch == 0:
            again.ownership.hold()
        return before(key, *rest)

    late = Push(lost.root, lost.ownership, config)
    with instead(late._ownership.location, "create", overtaken), pytest.raises(FencedError):
        late.run(entry)
    assert again.transactions() == []


def test_a_record_that_is_made_again_fences_nobody(site: Site, standby: Site) -> None:
    standby.ownership.take_over()
    standby.push(commit(standby.store, 2))
    standby.location.delete([OWNER_KEY])
    (standby.root / "sync.json").unlink()
    stranger = Site(standby.root, standby.config, pipeline="stranger", owner="somebody else")
    with pytest.raises(NotOwnerError):
        stranger.push()
    (standby.root / "sync.json").unlink(missing_ok=True)
    standby.push(commit(standby.store, 3))
    owner = read_owner(site.location)
    assert owner is not None
    assert owner.epoch == 3
    assert standby.transactions() == [1, 2, 3]


def test_a_run_that_pushed_just_before_it_was_taken_for_lost_keeps_its_place(tmp_path: Path, s3: str) -> None:
    config = config_of(s3)
    first = primary(tmp_path / "first", config, owner="1")
    second = primary(tmp_path / "second", config, owner="2")
    first.ownership.hold()

    def pushes_first(before: Any, key: str, *rest: Any) -> Any:
        if key == OWNER_KEY and not first.transactions():
            first.push(commit(first.store, 1))
        return before(key, *rest)

    with instead(second.location, "replace", pushes_first), pytest.raises(NotOwnerError, match="began anew"):
        second.push(commit(second.store, 7))
    first.push(commit(first.store, 2))
    assert first.transactions() == [1, 2]


def test_pipelines_of_two_services_are_not_the_same_for_their_name(tmp_path: Path, s3: str) -> None:
    config = config_of(s3)
    first = primary(tmp_path / "first", config, owner="1")
    second = primary(tmp_path / "second", config, owner="2")
    Ownership(first.location, first.root, "p", "1", "here").hold()
    with pytest.raises(NotOwnerError):
        Ownership(second.location, second.root, "p", "2", "there").hold()
    assert Ownership(second.location, second.root, "renamed", "2", "here").hold().epoch == 2


def test_a_place_that_is_spelled_otherwise_is_the_same(site: Site, standby: Site) -> None:
    standby.ownership.take_over()
    location = Location(
        site.config.model_copy(update={"endpoint": f"{site.config.endpoint}/"}), site.config.bucket
    )
    with pytest.raises(FencedError):
        Ownership(location, site.root, "p", "owner").refuse_if_fenced()
