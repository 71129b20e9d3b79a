"""Pipelines whose checkpoints are in an object store: push, start from there, stand by, take over."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import FencedError, NotOwnerError, PenstockError, StateError, SyncError
from penstock.storage.location import Location
from penstock.sync.ownership import read_owner
from tests.servers import BUCKET, KEY, SECRET
from tests.sync.places import config_of, instead

SQL = """
CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT);
CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS c, sum(n) AS s FROM t;
"""


class Store:
    """Pipelines of one test, their directories, and a folder of a bucket."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.folder = uuid.uuid4().hex
        self._made: list[penstock.Pipeline] = []

    def place(self, name: str = "main") -> str:
        return f"{BUCKET}/{self.folder}/{name}"

    def pipeline(
        self, where: str, name: str = "p", *, sql: str = SQL, interval: float | None = None, **sync: Any
    ) -> penstock.Pipeline:
        given = {
            "bucket": self.place(),
            "endpoint": self.url,
            "access_key": KEY,
            "secret_key": SECRET,
            **sync,
        }
        config = {
            "workers": 1,
            "fault_tolerance": {"checkpoint_interval_secs": interval},
            "storage": {"backend": {"name": "file", "config": {"sync": given}}},
        }
        made = penstock.Pipeline(name, program=sql, storage=self.directory / where, config=config)
        self._made.append(made)
        return made

    def lose(self, where: str) -> None:
        shutil.rmtree(self.directory / where)

    def close(self) -> None:
        for pipeline in self._made:
            pipeline.kill()


@pytest.fixture
def store(s3: str, tmp_path: Path) -> Iterator[Store]:
    made = Store(s3, tmp_path)
    yield made
    made.close()


def fill(pipeline: penstock.Pipeline, *numbers: int) -> None:
    pipeline.insert("t", [{"id": number, "n": number} for number in numbers])
    pipeline.flush()


def count(pipeline: penstock.Pipeline) -> int:
    return int(pipeline.query("SELECT c FROM sums").to_pylist()[0]["c"])


def pushed(store: Store, *numbers: int, **more: Any) -> str:
    """A pipeline with these rows, one checkpoint for each, all pushed, and lost; returns the first's id."""
    with store.pipeline("primary", **more) as pipeline:
        ids = []
        for number in numbers:
            fill(pipeline, number)
            pipeline.checkpoint()
            ids.append(pipeline.sync_checkpoint())
        pipeline.kill()
    store.lose("primary")
    return ids[0]


def eventually(what: Callable[[], Any], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


# -- starts ---------------------------------------------------------------------------------------


def test_a_start_from_the_newest_or_by_its_id(store: Store) -> None:
    first = pushed(store, 1, 2)
    with store.pipeline("new", start_from_checkpoint="latest") as pipeline:
        assert count(pipeline) == 2
        assert [found["transaction"] for found in pipeline.remote_checkpoints()] == [1, 2]
        fill(pipeline, 3)
        pipeline.checkpoint()
        pipeline.sync_checkpoint()
        assert pipeline.last_transaction == 3
    with store.pipeline("by-id", start_from_checkpoint=first, fail_if_no_checkpoint=True) as pipeline:
        assert count(pipeline) == 1
        pipeline.kill()


def test_what_is_here_is_preferred(store: Store) -> None:
    """A restart uses what is in the directory, also where it is newer than what was pushed."""
    with store.pipeline("primary", start_from_checkpoint="latest") as pipeline:
        fill(pipeline, 1)
        pipeline.checkpoint()
        pipeline.sync_checkpoint()
        fill(pipeline, 2)
    with store.pipeline("primary", start_from_checkpoint="latest") as pipeline:
        assert count(pipeline) == 2
        pipeline.kill()


@pytest.mark.parametrize("wanted", ["latest", "0192f3c0-0000-7000-8000-000000000000"])
def test_no_checkpoint_strict_and_lax(store: Store, wanted: str) -> None:
    with pytest.raises(SyncError, match="fail_if_no_checkpoint is set"):
        store.pipeline("new", start_from_checkpoint=wanted, fail_if_no_checkpoint=True).start()
    with store.pipeline("new", start_from_checkpoint=wanted) as pipeline:
        assert count(pipeline) == 0
        pipeline.kill()


@pytest.mark.parametrize("strict", [True, False])
def test_wrong_credentials_and_missing_buckets_fail_in_any_case(
    store: Store, strict_s3: str, strict: bool
) -> None:
    more = {"start_from_checkpoint": "latest", "fail_if_no_checkpoint": strict}
    with pytest.raises(SyncError, match="access denied"):
        store.pipeline("new", endpoint=strict_s3, secret_key="wrong", **more).start()
    with pytest.raises(SyncError, match="no such bucket"):
        store.pipeline("new", bucket="no-such-bucket", **more).start()


def test_a_place_of_another_pipeline_is_not_taken(store: Store) -> None:
    with store.pipeline("primary") as pipeline:
        fill(pipeline, 1)
        pipeline.checkpoint()
        pipeline.sync_checkpoint()
        with store.pipeline("intruder", "intruder") as intruder:
            with pytest.raises(NotOwnerError, match="belongs to the pipeline p"):
                intruder.sync_checkpoint()
            assert "belongs to" in intruder.stats()["sync"]["failure"]["error"]
            intruder.kill()
        with pytest.raises(NotOwnerError, match="read_bucket"):
            store.pipeline("another", "another", start_from_checkpoint="latest").start()
        pipeline.sync_checkpoint()
        assert pipeline.stats()["sync"]["failure"] is None
        pipeline.kill()


# -- read_bucket ----------------------------------------------------------------------------------


def test_a_new_pipeline_is_seeded_from_another_and_writes_only_to_its_own_place(store: Store) -> None:
    pushed(store, 1, bucket=store.place("other"))
    seeded = {"read_bucket": store.place("other"), "start_from_checkpoint": "latest"}
    with store.pipeline("seeded", "q", **seeded) as pipeline:
        assert count(pipeline) == 1
        fill(pipeline, 2)
        pipeline.checkpoint()
        pipeline.sync_checkpoint()
        pipeline.kill()
    config = config_of(store.url, f"{store.folder}/other")
    other = read_owner(Location(config, config.bucket))
    assert other is not None
    assert (other.pipeline, other.epoch) == ("p", 1)
    with store.pipeline("seeded", "q", **seeded) as pipeline:  # what is here is preferred
        assert count(pipeline) == 2
        pipeline.kill()
    store.lose("seeded")
    with store.pipeline("seeded", "q", **seeded) as pipeline:  # then the bucket
        assert count(pipeline) == 2
        pipeline.kill()


def test_both_places_are_empty(store: Store) -> None:
    more = {"read_bucket": store.place("other"), "start_from_checkpoint": "latest"}
    with pytest.raises(SyncError, match=r"nor in .*/other"):
        store.pipeline("new", fail_if_no_checkpoint=True, **more).start()


# -- pushes ---------------------------------------------------------------------------------------


def test_checkpoints_are_pushed_by_the_clock_and_on_request(store: Store) -> None:
    with store.pipeline("primary", interval=0.2, push_interval=1) as pipeline:
        fill(pipeline, 1)
        eventually(lambda: pipeline.stats()["sync"]["periodic"])
        found = pipeline.sync_checkpoint()  # one that was taken by the clock
        assert pipeline.stats()["sync"]["success"] == found
    with store.pipeline("new", start_from_checkpoint="latest") as pipeline:
        assert count(pipeline) == 1
        pipeline.kill()


def test_a_push_by_the_clock_that_fails_is_seen(store: Store, strict_s3: str) -> None:
    with store.pipeline(
        "primary", interval=0.2, push_interval=1, endpoint=strict_s3, secret_key="wrong", hold_outputs=False
    ) as pipeline:
        failure = eventually(lambda: pipeline.stats()["sync"]["failure"])
        assert "access denied (HTTP 403)" in failure["error"]
        assert SECRET not in str(pipeline.stats())
        fill(pipeline, 1)
        assert count(pipeline) == 1  # it goes on
        pipeline.kill()


def test_without_a_store_there_is_nothing_to_push_to(tmp_path: Path) -> None:
    with penstock.Pipeline("p", program=SQL, storage=tmp_path / "s", config={"workers": 1}) as pipeline:
        with pytest.raises(StateError, match="has no object store"):
            pipeline.sync_checkpoint()
        with pytest.raises(StateError, match="does not stand by"):
            pipeline.activate()
        assert pipeline.stats()["sync"] is None
        pipeline.kill()
    with pytest.raises(StateError, match="a standby follows an object store"):
        penstock.Pipeline("p", program=SQL, storage=tmp_path / "s").start(standby=True)
    given = {"storage": {"backend": {"config": {"sync": {"bucket": "b"}}}}}
    with pytest.raises(StateError, match="give one with storage"):
        penstock.Pipeline("p", program=SQL, config=given)
    for config, text in (
        ({"storage": {"backends": {}}}, "unknown setting storage.backends"),
        ({"storage": {"backend": {"config": {"sink": {}}}}}, "unknown setting storage.backend.config.sink"),
        ({"storage": {"backend": 1}}, "storage.backend must be a dict"),
        ({"storage": {"backend": {"config": {"sync": {"bucket": "b", "standby": True}}}}}, "initial=standby"),
    ):
        with pytest.raises(PenstockError, match=text):
            penstock.Pipeline("p", program=SQL, storage=tmp_path / "s", config=config)


def test_secrets_are_in_no_checkpoint(store: Store) -> None:
    with store.pipeline("primary") as pipeline:
        fill(pipeline, 1)
    found = [path.read_bytes() for path in (store.directory / "primary").rglob("*.json")]
    assert found
    assert not any(SECRET.encode() in data for data in found)


# -- standby --------------------------------------------------------------------------------------


def test_a_standby_follows_takes_over_and_stays(store: Store) -> None:
    primary = store.pipeline("primary")
    primary.start()
    standby = store.pipeline("standby", "p-standby", start_from_checkpoint="latest", pull_interval=1)
    standby.start(standby=True)
    assert standby.state == "Standby"
    with pytest.raises(StateError):
        standby.query("SELECT 1")
    for number in (1, 2, 3):
        fill(primary, number)
        primary.checkpoint()
        primary.sync_checkpoint()
    eventually(lambda: standby.stats()["standby"]["transaction"] == 3)
    assert standby.stats()["standby"]["age_seconds"] < 60
    fill(primary, 4)
    primary.checkpoint()
    primary.sync_checkpoint()
    standby.activate()
    assert standby.state == "Running"
    assert count(standby) == 4
    fill(standby, 5)
    assert standby.last_transaction == 5
    with suppress(FencedError):  # it looks from time to time, too
        primary.checkpoint()
    with pytest.raises(FencedError, match="took over"):
        primary.sync_checkpoint()
    eventually(lambda: primary.state == "Stopped")
    with pytest.raises(FencedError, match="took over"):
        primary.checkpoint()
    with pytest.raises(FencedError):
        fill(primary, 6)
    primary.kill()
    with pytest.raises(FencedError):
        store.pipeline("primary").start()
    standby.stop()
    again = store.pipeline("standby", "p-standby", start_from_checkpoint="latest")
    again.start(standby=True)  # it was activated, and does not fall back
    assert (again.state, count(again)) == ("Running", 5)


def test_a_standby_from_one_checkpoint(store: Store) -> None:
    first = pushed(store, 1, 2)
    standby = store.pipeline("standby", start_from_checkpoint=first, pull_interval=1)
    standby.start(standby=True)
    eventually(lambda: standby.stats()["standby"]["checkpoint"] == first)
    standby.activate()
    assert count(standby) == 1


def test_a_standby_that_is_stopped_goes_on_as_one(store: Store) -> None:
    pushed(store, 1)
    for _ in range(2):
        standby = store.pipeline("standby", start_from_checkpoint="latest", pull_interval=1)
        standby.start(standby=True)
        eventually(lambda standby=standby: standby.stats()["standby"]["transaction"] == 1)
        standby.stop()
        assert standby.state == "Stopped"


def test_an_activation_that_cannot_fetch_leaves_a_standby(store: Store) -> None:
    pushed(store, 1)
    standby = store.pipeline("standby", start_from_checkpoint="latest", pull_interval=1)
    standby.start(standby=True)
    eventually(lambda: standby.stats()["standby"]["transaction"] == 1)
    following = standby._standby._following  # type: ignore[union-attr]

    def fails(*_: Any) -> None:
        raise SyncError("the store does not answer")

    with instead(following, "fetch", fails), pytest.raises(SyncError, match="does not answer"):
        standby.activate()
    assert standby.state == "Standby"
    standby.activate()
    assert count(standby) == 1


def test_a_standby_with_nothing_to_follow(store: Store) -> None:
    standby = store.pipeline(
        "standby", start_from_checkpoint="latest", fail_if_no_checkpoint=True, pull_interval=1
    )
    standby.start(standby=True)
    with pytest.raises(SyncError, match="fail_if_no_checkpoint is set"):
        standby.activate()
    assert standby.state == "Standby"
    pushed(store, 1)
    eventually(lambda: standby.stats()["standby"]["transaction"] == 1)


def test_a_standby_is_seeded_and_goes_over_to_its_own_place(store: Store) -> None:
    pushed(store, 1, bucket=store.place("other"))
    standby = store.pipeline(
        "standby", "q", read_bucket=store.place("other"), start_from_checkpoint="latest", pull_interval=1
    )
    standby.start(standby=True)
    eventually(lambda: standby.stats()["standby"]["source"] == "read_bucket")
    pushed(store, 11, 12)
    eventually(lambda: standby.stats()["standby"]["source"] == "bucket")
    standby.activate()
    assert count(standby) == 2
    fill(standby, 13)
    standby.checkpoint()
    standby.sync_checkpoint()
    assert [found["transaction"] for found in standby.remote_checkpoints()] == [1, 2, 3]


# -- outputs --------------------------------------------------------------------------------------

WRITTEN = """
CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT);
CREATE MATERIALIZED VIEW sums WITH ('connectors' = '[{
  "name": "written", "transport": {"name": "file_output", "config": {"path": "PATH"}}
}]') AS SELECT id, n FROM t;
"""


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_outputs_get_only_what_was_pushed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    more = {"sql": WRITTEN.replace("PATH", str(path)), "push_interval": 1_000, "interval": 1_000}
    with store.pipeline("primary", **more) as pipeline:
        pipeline.insert("t", [{"id": 1, "n": 1}])
        pipeline.flush()
        assert pipeline.query("SELECT count(*) AS c FROM sums").to_pylist() == [{"c": 1}]
        assert not pipeline.wait(timeout=1)
        assert lines(path) == 0
        pipeline.checkpoint()
        assert lines(path) == 0
        pipeline.sync_checkpoint()
        assert pipeline.wait(timeout=30)
        assert lines(path) == 1
        pipeline.insert("t", [{"id": 2, "n": 2}])
        pipeline.flush()
        pipeline.kill()  # its journal has the second row
    assert lines(path) == 1
    with store.pipeline("primary", **more) as pipeline:
        assert pipeline.stats()["outputs"]["written"]["behind"] == 1
        assert lines(path) == 1
    # A stop pushes what it saved, and the next start gives it to the output.
    with store.pipeline("primary", **more) as pipeline:
        eventually(lambda: lines(path) == 2)
        pipeline.kill()
    store.lose("primary")
    with store.pipeline("other", start_from_checkpoint="latest", **more) as pipeline:
        pipeline.insert("t", [{"id": 3, "n": 3}])
        pipeline.flush()
        pipeline.checkpoint()
        pipeline.sync_checkpoint()
        assert pipeline.wait(timeout=30)
        assert lines(path) == 3
        pipeline.kill()


def test_outputs_that_are_not_held(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    sql = WRITTEN.replace("PATH", str(path))
    with store.pipeline("primary", sql=sql, push_interval=1_000, hold_outputs=False) as pipeline:
        pipeline.insert("t", [{"id": 1, "n": 1}])
        pipeline.flush()
        assert lines(path) == 1
        pipeline.kill()
    with pytest.raises(StateError, match="outputs get only what was pushed"):
        store.pipeline("primary", sql=sql, push_interval=1_000)


def test_an_output_that_is_new_waits_for_a_checkpoint_that_knows_it(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "written.jsonl"
    plain = "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT);"
    plain += "CREATE MATERIALIZED VIEW sums AS SELECT id, n FROM t;"
    more = {"push_interval": 1_000, "interval": 1_000}
    with store.pipeline("primary", sql=plain, **more) as pipeline:
        pipeline.insert("t", [{"id": 1, "n": 1}])
    with store.pipeline("primary", sql=WRITTEN.replace("PATH", str(path)), **more) as pipeline:
        pipeline.sync_checkpoint()  # the one of the run before, which has all transactions
        assert not pipeline.wait(timeout=1)
        assert lines(path) == 0
        pipeline.checkpoint()
        pipeline.sync_checkpoint()
        assert pipeline.wait(timeout=30)
        assert lines(path) == 1
        pipeline.kill()
