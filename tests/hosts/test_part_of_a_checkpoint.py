"""A host sends and fetches its part of a checkpoint, for its coordinator and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import httpx
import pytest

from penstock.errors import DamagedError, StateError, SyncError
from penstock.hosts.admission import refuse_others
from penstock.hosts.client import CopyRunsError
from penstock.hosts.coordination import (
    PULL,
    PULL_STATUS,
    PUSH,
    Batch,
    PullPart,
    PullState,
    PushPart,
    body_of,
)
from penstock.hosts.messages import HostIndex
from penstock.hosts.part import Lane
from penstock.hosts.refusals import RefusalError
from penstock.storage.files import Content
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from tests.hosts.running import FIRST, PIPELINE, SECOND, Alone, wait_until
from tests.servers import SECRET
from tests.sync.places import config_of, overwrite

CHECKPOINT = "0192f3c0-0000-7000-8000-000000000000"


@dataclass
class Asked:
    """Whoever asks a host, and what for."""

    alone: Alone
    config: SyncConfig
    batches: tuple[Batch, ...] = ()

    @property
    def location(self) -> Location:
        return Location(self.config, self.config.bucket)

    def put(self, name: str, data: bytes) -> Batch:
        content = self.alone.put("view-a", name, data)
        batch = Batch("view-a", name, f"host1/batches/view-a/{name}-{content.checksum}.arrow", content)
        self.batches += (batch,)
        return batch

    @property
    def push(self) -> PushPart:
        membership = self.alone.membership
        return PushPart(membership, CHECKPOINT, self.config.bucket, self.config, self.batches)

    @property
    def pull(self) -> PullPart:
        return PullPart(**{**vars(self.push), "standby": False})

    def post(self, path: str, body: Any, token: str | None = None) -> Any:
        return httpx.post(self.alone.url + path, json=body, headers=self.headers(token))

    def headers(self, token: str | None = None) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.alone.token if token is None else token}",
            **self.alone.membership.headers(),
        }

    def status(self) -> Any:
        return httpx.get(self.alone.url + PULL_STATUS, headers=self.headers()).json()

    def pulled(self) -> Any:
        wait_until(lambda: self.status()["state"] != "in progress")
        return self.status()


@pytest.fixture
def asked(alone: Alone, s3: str) -> Asked:
    return Asked(alone, config_of(s3))


class Slow:
    """Jobs of a lane that last until they are let go."""

    def __init__(self, lane: Lane[Any]) -> None:
        self.go = threading.Event()
        self.jobs = 0
        lane._act = self._act

    def _act(self, _job: Any) -> None:
        self.jobs += 1
        self.go.wait(60)


# -- copying --------------------------------------------------------------------------------------


def test_what_was_sent_can_be_fetched(asked: Asked) -> None:
    batches = [asked.put(FIRST, b"rows"), asked.put(SECOND, b"more rows")]
    progress = asked.alone.agent.push(asked.push)
    assert (progress.done, progress.files, progress.bytes_done) == (True, 2, 13)
    assert sorted(asked.location.keys("host1")) == sorted(batch.key for batch in batches)
    assert asked.alone.agent.push(asked.push).files == 0, "it is there already"
    assert asked.status() == {"state": "not started", "standby": None, "progress": None, "error": None}
    asked.alone.path("view-a", FIRST).unlink()
    asked.alone.agent.pull(asked.pull)
    status = asked.pulled()
    assert (status["state"], status["standby"]) == ("done", False)
    assert (status["progress"]["files"], status["progress"]["bytes_done"]) == (1, 4)
    assert asked.alone.path("view-a", FIRST).read_bytes() == b"rows"


def test_a_batch_that_is_damaged_is_not_sent(asked: Asked) -> None:
    batch = asked.put(FIRST, b"rows")
    asked.alone.path("view-a", FIRST).write_bytes(b"r0ws")
    with pytest.raises(DamagedError, match="is damaged: expected 4 bytes"):
        asked.alone.agent.push(asked.push)
    assert asked.location.size(batch.key) is None


def test_an_object_that_is_damaged_or_missing_is_named(asked: Asked) -> None:
    batch = asked.put(FIRST, b"rows")
    asked.alone.agent.push(asked.push)
    asked.alone.path("view-a", FIRST).unlink()
    overwrite(asked.location, batch.key, b"r0ws")
    for how in ("damaged", "missing"):
        assert asked.post(PULL, body_of(asked.pull)).status_code == 202
        status = asked.pulled()
        assert status["state"] == "error"
        error = status["error"]
        assert (error["kind"], error["bucket"], error["key"]) == ("DAMAGED", "penstock-test", batch.key)
        assert how in error["message"]
        asked.location.delete([batch.key])
    assert not asked.alone.path("view-a", FIRST).exists()


def test_a_store_that_refuses_is_told_with_bucket_key_and_status(asked: Asked) -> None:
    asked.put(FIRST, b"rows")
    elsewhere = asked.config.model_copy(update={"bucket": "no-such-bucket"})
    part = replace(asked.push, sync=elsewhere, bucket="no-such-bucket")
    with pytest.raises(SyncError, match=r"host 1 of 2 at .* no such bucket") as raised:
        asked.alone.agent.push(part)
    assert (raised.value.bucket, raised.value.status) == ("no-such-bucket", 404)
    asked.alone.path("view-a", FIRST).unlink()
    asked.post(PULL, body_of(PullPart(**{**vars(part), "standby": True})))
    status = asked.pulled()
    assert (status["standby"], status["error"]["kind"]) == (True, "SYNC_ERROR")
    assert (status["error"]["bucket"], status["error"]["status"]) == ("no-such-bucket", 404)


def test_the_keys_of_the_store_are_in_no_text(asked: Asked) -> None:
    assert SECRET not in repr(asked.push)
    assert SECRET not in repr(asked.config)
    answer = asked.post(PUSH, {**body_of(asked.push), "sync": {"bucket": 7, "secret_key": SECRET}})
    assert answer.status_code == 400
    assert SECRET not in answer.text


# -- one at a time --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PUSH, PULL])
def test_the_same_request_joins_and_another_is_refused(
    asked: Asked, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.hosts.syncing._ANSWER_SECONDS", 0.01)
    asked.put(FIRST, b"rows")
    part: Any = asked.push if path == PUSH else asked.pull
    lane: Lane[Any] = asked.alone.duty.part.pushes if path == PUSH else asked.alone.duty.part.pulls
    slow = Slow(lane)
    answers: list[int] = []
    ask: Callable[[], None] = lambda: answers.append(asked.post(path, body_of(part)).status_code)  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (slow.jobs, answers) == (1, [202] * 6)
    for other in ({"checkpoint": "another"}, {"batches": []}):
        answer = asked.post(path, {**body_of(part), **other})
        assert (answer.status_code, answer.json()["error_code"]) == (409, "OtherCopy")
        assert CHECKPOINT in answer.json()["message"]
    if path == PULL:
        assert asked.post(path, {**body_of(part), "standby": True}).status_code == 409
        assert asked.status()["state"] == PullState.IN_PROGRESS
        assert asked.status()["progress"]["bytes"] == 0
    slow.go.set()
    wait_until(lambda: lane.job is not None and lane.job.ended.is_set())
    assert asked.post(path, {**body_of(part), "batches": []}).status_code in (200, 202)


def test_a_copy_ends_with_the_run_that_asked_for_it(asked: Asked) -> None:
    slow = Slow(asked.alone.duty.part.pulls)
    job = asked.alone.duty.part.pulls.begin(asked.pull)
    asked.alone.duty.leave()
    with pytest.raises(StateError, match="stopped while files were copied"):
        job.stop.check()
    asked.alone.join()  # the same run, after the host was cut off: what it began then is over
    assert asked.status()["state"] == PullState.NOT_STARTED
    with pytest.raises(CopyRunsError, match="ask again when it is done"):
        asked.alone.agent.pull(asked.pull)
    slow.go.set()
    asked.alone.duty.part.wait()
    assert job.ended.is_set()
    asked.alone.agent.pull(asked.pull)
    assert asked.pulled()["state"] == PullState.DONE
    assert slow.jobs == 2
    asked.alone.duty.leave()
    assert asked.post(PULL, body_of(asked.pull)).status_code == 503
    with pytest.raises(RefusalError, match="has not checked in"):
        asked.alone.duty.part.pulls.begin(
            asked.pull, lambda part: refuse_others(asked.alone.duty, part.membership.headers())
        )


# -- who may ask, and for what --------------------------------------------------------------------


@pytest.mark.parametrize("path", [PUSH, PULL])
def test_nobody_but_the_coordinator(asked: Asked, path: str) -> None:
    assert asked.post(path, body_of(asked.pull), token="old").status_code == 401
    headers = asked.alone.membership.headers()
    assert httpx.get(asked.alone.url + PULL_STATUS, headers=dict(headers)).status_code == 401


@pytest.mark.parametrize("path", [PUSH, PULL])
@pytest.mark.parametrize(
    ("change", "given", "own"),
    [
        ({"pipeline": "other"}, "other", PIPELINE),
        ({"incarnation": "other"}, "other", None),
        ({"host": HostIndex(0, 2)}, "Penstock-Host: the request says '0'", "'1'"),
        ({"host": HostIndex(1, 3)}, "Penstock-Hosts: the request says '3'", "'2'"),
    ],
)
def test_a_part_of_another_host(
    asked: Asked, path: str, change: dict[str, Any], given: str, own: str | None
) -> None:
    other = replace(asked.pull, membership=replace(asked.alone.membership, **change))
    answer = asked.post(path, body_of(other))
    assert answer.status_code == 400
    assert given in answer.json()["message"]
    assert (own or asked.alone.membership.incarnation) in answer.json()["message"]
    assert asked.alone.duty.part.pushes.job is asked.alone.duty.part.pulls.job is None


def test_an_index_that_cannot_be(asked: Asked) -> None:
    membership = {**asdict(asked.alone.membership), "host": {"index": 2, "count": 2}}
    answer = asked.post(PUSH, {**body_of(asked.push), "membership": membership})
    assert answer.status_code == 400
    assert "there is no host 2 of 2" in answer.json()["message"]


def test_standby_must_be_said(asked: Asked) -> None:
    body = body_of(asked.pull)
    del body["standby"]
    answer = asked.post(PULL, body)
    assert answer.status_code == 400
    assert "standby" in answer.json()["message"]
    assert asked.status()["state"] == "not started"


@pytest.mark.parametrize(("trace", "name"), [("..", FIRST), ("view-a", "../../host"), ("a/b", FIRST)])
def test_names_that_lead_elsewhere(asked: Asked, trace: str, name: str) -> None:
    strange = Batch(trace, name, "host1/x", Content(1, "0" * 32))
    answer = asked.post(PULL, body_of(replace(asked.pull, batches=(strange,))))
    assert (answer.status_code, answer.json()["error_code"]) == (400, "InvalidName")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer old"}])
def test_a_single_host_copies_no_checkpoint(asked: Asked, headers: dict[str, str]) -> None:
    """It says so to everybody: who asks this knows no token."""
    answer = httpx.post(f"{asked.alone.url}/checkpoint/sync", headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (400, "OnlyAPart")
    assert f"POST {PUSH}" in answer.json()["message"]
