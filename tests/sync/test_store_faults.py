"""An object store that fails: it is asked again, or the failure is told by name; nothing is ever wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import PenstockError, SyncError
from penstock.sync.remote import find
from tests.disks import IdleDisk, using
from tests.servers import BUCKET, free_port
from tests.stores import all_whole, commit, transactions
from tests.sync.faulty import Fault, Line, Request, faulty
from tests.sync.places import Site, config_of, instead, primary


@pytest.fixture(autouse=True)
def _idle() -> Iterator[None]:
    with using(IdleDisk()):
        yield


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.location._TIMEOUT", timedelta(seconds=2))
    monkeypatch.setattr("penstock.storage.location._PAUSES", (0.1, 0.1, 0.1))


@pytest.fixture
def line(s3: str) -> Iterator[Line]:
    with faulty(s3) as line:
        yield line


@pytest.fixture
def site(tmp_path: Path, line: Line) -> Site:
    return primary(tmp_path / "primary", config_of(line.url))


def writes(request: Request) -> bool:
    return request.method == "PUT"


def reads(request: Request) -> bool:
    return request.method == "GET" and not request.is_listing


def anything(request: Request) -> bool:
    return True


PASSING = {
    "500 to writes": Fault(writes, 3, status=500),
    "503 to anything": Fault(anything, 5, status=503),
    "429 to reads": Fault(reads, 2, status=429),
    "cut writes": Fault(writes, 2, cut=True),
    "cut reads": Fault(reads, 2, cut=True),
    "cut in the middle of an answer": Fault(reads, 2, cut_body=True),
    "no answer in time": Fault(writes, 1, delay_s=3),
    "an answer that was lost": Fault(writes, 2, after=True, cut=True),
    "500 after all was done": Fault(writes, 2, after=True, status=500),
}


@pytest.mark.parametrize("what", PASSING)
def test_what_passes_is_waited_for(site: Site, line: Line, tmp_path: Path, what: str) -> None:
    fault = PASSING[what]
    line.faults = [Fault(**fault.__dict__)]
    site.push(commit(site.store, 1))
    site.push(commit(site.store, 2))
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert transactions(all_whole(other.root)) == [2]
    assert line.left == 0


@pytest.mark.parametrize("key", ["owner.json", "batches/", "state.json", "manifest.json", "catalog.json"])
@pytest.mark.parametrize("after", [False, True])
def test_a_push_may_fail_anywhere(site: Site, line: Line, tmp_path: Path, key: str, after: bool) -> None:
    """The place stays as good as it was, and the next push makes it good."""
    site.push(commit(site.store, 1))
    entry = commit(site.store, 5)
    line.faults = [Fault(lambda r: key in r.path and writes(r), 99, after=after, status=400)]
    if key == "owner.json":
        site.pipeline = "renamed"  # or it would not be written
    with pytest.raises(SyncError) as caught:
        site.push(entry)
    assert caught.value.bucket == BUCKET
    assert key in str(caught.value.key)
    assert caught.value.status == 400
    line.faults = []
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert transactions(all_whole(other.root)) == [5 if after and key == "catalog.json" else 1]
    site.push(entry)
    other.pull()
    assert transactions(all_whole(other.root))[-1] == 5


def test_a_bit_that_flips_on_the_way(site: Site, line: Line, tmp_path: Path) -> None:
    site.push(commit(site.store, 1))
    line.faults = [Fault(lambda r: "/batches/" in r.path and reads(r), 1, flip=True)]
    other = Site(tmp_path / "other", site.config)
    other.pull()
    assert line.left == 0
    assert transactions(all_whole(other.root)) == [1]


def test_a_listing_that_lags_does_not_matter(site: Site, line: Line, tmp_path: Path) -> None:
    """What there is to send or to fetch is not taken from a listing; only what is left over is."""
    site.push(commit(site.store, 1))
    then = site.location.keys("batches")
    gone = "batches/trace-0/deleted-meanwhile.arrow"
    for listed in ([], then, [*then, gone]):
        with instead(site.location, "keys", lambda _before, _folder, listed=listed: listed):
            site.push(commit(site.store, 2 + len(listed)))
        line.asked.clear()
        other = Site(tmp_path / f"other-{len(listed)}", site.config)
        other.pull()
        assert transactions(all_whole(other.root)) == [2 + len(listed)]
        assert not [request for request in line.asked if request.is_listing]


def test_a_store_that_is_gone_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.location._RETRY_FOR", timedelta(seconds=1))
    site = primary(tmp_path / "primary", config_of(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(SyncError, match=r"catalog\.json cannot be read"):
        find(site.location, "latest", site.config)
    with pytest.raises(SyncError, match=r"owner\.json cannot be read"):
        site.push()


def test_a_bucket_that_is_not_there_is_not_an_empty_one(tmp_path: Path, s3: str) -> None:
    config = config_of(s3).model_copy(update={"bucket": "no-such-bucket/folder"})
    site = primary(tmp_path / "primary", config)
    for act in (lambda: find(site.location, "latest", config), site.push):
        with pytest.raises(SyncError, match="there is no such bucket") as caught:
            act()
        assert (caught.value.bucket, caught.value.status) == ("no-such-bucket", 404)


@pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
def test_wrong_credentials_are_refused(tmp_path: Path, strict_s3: str, wrong: str) -> None:
    right = config_of(strict_s3)
    site = primary(tmp_path / "primary", right)
    site.push(commit(site.store, 1))
    config = right.model_copy(update={wrong: "not this one"})
    other = primary(tmp_path / "other", config)
    for act in (lambda: find(other.location, "latest", config), other.push):
        with pytest.raises(SyncError, match="access denied") as caught:
            act()
        assert caught.value.status == 403
        assert "not this one" not in str(caught.value)


def test_no_credentials(tmp_path: Path, strict_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.location._RETRY_FOR", timedelta(seconds=1))
    config = config_of(strict_s3).model_copy(update={"access_key": None, "secret_key": None})
    site = primary(tmp_path / "primary", config)
    with pytest.raises(PenstockError):
        site.push()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "penstock-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "penstock-secret")
    site = Site(site.root, config)
    site.push()
    assert site.transactions() == [0]


def test_secrets_by_reference(tmp_path: Path, strict_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_KEY", "penstock-key")
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "penstock-secret")
    keys = {"access_key": "${env:PENSTOCK_TEST_KEY}", "secret_key": "${env:PENSTOCK_TEST_SECRET}"}
    site = primary(tmp_path / "primary", config_of(strict_s3, **keys))
    site.push(commit(site.store, 1))
    assert site.transactions() == [1]
