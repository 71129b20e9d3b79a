"""Copies of checkpoints, a rename and a failover between two pipelines of a service, with the real client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feldera import FelderaClient, Pipeline, PipelineBuilder
from feldera.enums import PipelineStatus
from feldera.runtime_config import RuntimeConfig

from tests.servers import BUCKET, KEY, SECRET
from tests.service.managers import wait_for
from tests.service.real import PROGRAM, Served


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "service")
    yield made
    made.end()


def built(service: Served, name: str, sync: dict[str, Any]) -> Pipeline:
    storage = {"backend": {"name": "file", "config": {"sync": sync}}}
    config = RuntimeConfig.from_dict({"workers": 1, "storage": storage})
    return PipelineBuilder(FelderaClient(service.url), name, PROGRAM, runtime_config=config).create()


def count(pipeline: Pipeline) -> int:
    return int(next(iter(pipeline.query("SELECT count(*) AS c FROM t")))["c"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_failover_between_two_pipelines(service: Served, s3: str) -> None:
    keys = {"access_key": KEY, "secret_key": SECRET, "endpoint": s3}
    sync = {"bucket": f"{BUCKET}/{uuid.uuid4().hex}", **keys}
    primary = built(service, "primary", sync)
    primary.start()
    primary.input_json("t", [{"id": 1, "g": 1, "n": 1}])
    primary.checkpoint(wait=True)
    found = primary.sync_checkpoint(wait=True)
    assert [one["uuid"] for one in primary.remote_checkpoints()] == [found]
    assert str(primary.last_successful_checkpoint_sync()) == found

    primary.stop(force=True)
    primary.clear_storage()
    storage = {"backend": {"name": "file", "config": {"sync": {**sync, "start_from_checkpoint": "latest"}}}}
    changed = {"name": "renamed", "runtime_config": {"workers": 1, "storage": storage}}
    service.http.patch("/v0/pipelines/primary", json=changed).raise_for_status()
    primary = Pipeline.get("renamed", FelderaClient(service.url))
    primary.start()
    assert count(primary) == 1  # under another name, the place is still its own
    primary.input_json("t", [{"id": 2, "g": 1, "n": 1}])
    primary.checkpoint(wait=True)
    primary.sync_checkpoint(wait=True)

    follows = {**sync, "start_from_checkpoint": "latest", "pull_interval": 1}
    standby = built(service, "standby", follows)
    standby.start_standby()
    assert standby.status() == PipelineStatus.STANDBY

    def details() -> dict[str, Any]:
        row = service.http.get("/v0/pipelines/standby").json()
        return (row["deployment_runtime_status_details"] or {}).get("standby") or {}

    wait_for(lambda: details().get("transaction") == 2, 60, details)
    metrics = service.http.get("/v0/pipelines/standby/metrics").text
    assert 'penstock_standby_transaction{pipeline="standby"} 2' in metrics
    assert service.http.get("/v0/pipelines/standby/query", params={"sql": "SELECT 1"}).status_code == 400
    assert SECRET.encode() not in service.http.get("/v0/pipelines/standby/support_bundle").content

    standby.activate()
    assert count(standby) == 2
    assert service.http.post("/v0/pipelines/standby/activate").json()["error_code"] == "NotStandby"

    def error() -> dict[str, Any]:
        return service.http.get("/v0/pipelines/renamed").json()["deployment_error"] or {}

    wait_for(lambda: error().get("error_code") == "FENCED", 60, error)  # it finds out by itself
    standby.stop(force=True)
    assert "Traceback" not in service.log.read_text()
    assert service.stop() == 0
    assert service.processes() == []
