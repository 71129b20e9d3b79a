"""Pushes of a running pipeline: one at a time, and what became of each is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.model import Entry
from penstock.errors import FencedError, StateError, SyncError
from penstock.sync.syncer import Safe, Syncer, safe
from tests.disks import IdleDisk, using
from tests.stores import commit
from tests.sync.places import Site, config_of, instead, primary


@pytest.fixture(autouse=True)
def _idle() -> Iterator[None]:
    with using(IdleDisk()):
        yield


@pytest.fixture
def site(tmp_path: Path, s3: str) -> Site:
    return primary(tmp_path / "primary", config_of(s3))


class Told:
    """What a syncer tells its pipeline."""

    def __init__(self) -> None:
        self.pushed: list[int] = []
        self.fenced: list[FencedError] = []

    def syncer(self, site: Site, **more: Any) -> Syncer:
        config = site.config.model_copy(update=more)
        return Syncer(
            site.store,
            config,
            site.pipeline,
            pushed=lambda entry: self.pushed.append(entry.transaction),
            fenced=self.fenced.append,
        )


def eventually(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 240
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_push_is_told(site: Site) -> None:
    entry = commit(site.store, 3)
    told = Told()
    syncer = told.syncer(site)
    assert syncer.push_and_wait().id == entry.id
    assert told.pushed == [3]
    found = syncer.stats()
    assert (found["success"], found["periodic"], found["failure"], found["pushes"]) == (
        entry.id,
        None,
        None,
        1,
    )
    assert found["bytes"] > entry.manifest.bytes
    assert found["running"] == []


class Held:
    """Keeps uploads waiting until it is told otherwise."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, before: Any, *arguments: Any) -> Any:
        assert self.go.wait(30)
        return before(*arguments)


def test_a_second_push_of_the_same_joins_and_another_is_refused(site: Site) -> None:
    store = site.store
    first, second = commit(store, 1), commit(store, 2)
    told, held = Told(), Held()
    syncer = told.syncer(site)
    with instead(syncer.location, "upload", held):
        assert syncer.push(second).id == second.id
        assert syncer.push(second).id == second.id
        assert syncer.stats()["running"] == [second.id]
        with pytest.raises(StateError, match="is being pushed"):
            syncer.push(first)
        held.go.set()
        syncer.push_and_wait(second)
    eventually(lambda: told.pushed == [2])
    assert syncer.status.pushes == 1
    syncer.push_and_wait(first)
    assert site.transactions() == [1, 2]


def test_a_failure_stays_until_a_push_succeeds(site: Site) -> None:
    entry = commit(site.store, 1)
    told = Told()
    syncer = told.syncer(site)

    def fails(*_: Any) -> None:
        raise SyncError("the store does not answer", bucket="b", key="k", status=503)

    with instead(syncer.location, "upload", fails), pytest.raises(SyncError, match="does not answer"):
        syncer.push_and_wait()
    failure = syncer.stats()["failure"]
    assert (failure["uuid"], failure["error"]) == (entry.id, "the store does not answer")
    assert told.pushed == []
    held = Held()
    with instead(syncer.location, "upload", held):
        syncer.push()
        assert syncer.stats()["failure"] is None  # how this attempt goes is not known yet
        held.go.set()
        syncer.push_and_wait()
    assert (syncer.status.failures, syncer.status.failure) == (1, None)


def test_what_was_not_expected_is_told_too(site: Site) -> None:
    syncer = Told().syncer(site)

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("a mistake")

    with instead(syncer.location, "upload", fails), pytest.raises(StateError, match="ZeroDivisionError"):
        syncer.push_and_wait()


def test_by_the_clock_and_at_the_end(site: Site) -> None:
    store = site.store
    commit(store, 1)
    told = Told()
    syncer = told.syncer(site, push_interval=1)
    syncer._store = store
    syncer.start()
    eventually(lambda: told.pushed == [1])
    assert syncer.stats()["success"] is None
    entry: Entry = commit(store, 2)
    syncer.push_last()
    assert told.pushed == [1, 2]
    assert syncer.stats()["periodic"] == entry.id
    syncer.push_last()  # there is nothing new
    assert told.pushed == [1, 2]
    syncer.close()
    with pytest.raises(StateError, match="is stopping"):
        syncer.push()


def test_whoever_was_fenced_finds_out_by_itself(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sync.syncer._LOOK_SECONDS", 0.1)
    commit(site.store, 1)
    told = Told()
    syncer = told.syncer(site)
    syncer.push_and_wait()
    syncer.start()
    standby = Site(tmp_path / "standby", site.config)
    standby.pull()
    standby.ownership.take_over()
    eventually(lambda: told.fenced)
    assert "took over" in str(told.fenced[0])
    syncer.close()


def test_how_much_is_in_the_store(site: Site) -> None:
    store = site.store
    assert safe(store, site.config) == Safe(-1, False)
    for number in (1, 2):
        site.push(commit(store, number))
    assert safe(store, site.config) == Safe(2, True)
    commit(store, 3)
    assert safe(store, site.config) == Safe(2, False)
    store.retire(1)  # what is not here any more may be of another history
    assert safe(store, site.config) == Safe(-1, False)


def test_a_push_ends_with_its_pipeline(site: Site) -> None:
    commit(site.store, 1)
    told, held = Told(), Held()
    syncer = told.syncer(site)
    with instead(syncer.location, "upload", held):
        syncer.push()
        threading.Timer(0.2, held.go.set).start()
        syncer.close()
    assert site.transactions() == []
    assert told.pushed == []
    assert "was stopped" in str(syncer.stats()["failure"])
