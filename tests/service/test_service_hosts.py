"""A pipeline of the service on two hosts: waited for, used, lost, and there again after a kill."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.hosts.processes import Hosts, addresses_of
from tests.servers import BUCKET, KEY, SECRET
from tests.service.real import Pipeline, Served, killed, row, until

ROWS = 20_000
"""More than the journal keeps within a record."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "service", "--spares", "0")
    yield made
    made.end()


def told(pipeline: Pipeline, name: str) -> str:
    """What its status says of it."""
    return str((pipeline.get()["deployment_runtime_status_details"] or {}).get(name, ""))


def metric(pipeline: Pipeline, line: str) -> bool:
    return line in pipeline.service.http.get(f"{pipeline.path}/metrics").text


@pytest.mark.slow(minutes=2)
@pytest.mark.timeout(1800)
def test_a_pipeline_on_two_hosts(service: Served, s3: str, tmp_path: Path) -> None:
    sync = {"bucket": f"{BUCKET}/{uuid.uuid4().hex}", "endpoint": s3, "access_key": KEY, "secret_key": SECRET}
    storage = {"backend": {"name": "file", "config": {"sync": sync}}}
    pipeline = service.pipeline("shop").create(hosts=2, workers=1, storage=storage)
    assert service.http.post(f"{pipeline.path}/start").status_code == 202
    until(lambda: "penstock host --index 1 --coordinator" in told(pipeline, "reason"))
    assert pipeline.status == "Initializing"
    directory = service.directory / "pipelines" / pipeline.get()["id"] / "storage"
    assert str(directory) in told(pipeline, "reason")

    hosts = Hosts(tmp_path, directory, addresses_of(2))
    try:
        pipeline.wait_for("Running")
        assert pipeline.push([row(number) for number in range(ROWS)]).status_code == 200
        until(lambda: pipeline.query("SELECT sum(c) AS n FROM sums") == [{"n": ROWS}])
        assert metric(pipeline, 'penstock_host_in{pipeline="shop",host="1"} 1')
        assert pipeline.push([row(number) for number in range(10)]).status_code == 200
        until(lambda: metric(pipeline, 'how="written"'))
        shares = service.http.get(f"{pipeline.path}/stats").json()["hosts"]["hosts"]
        assert sum(share["processed_records"] for share in shares) == ROWS + 10

        assert service.http.post(f"{pipeline.path}/checkpoint").is_success
        until(lambda: service.http.get(f"{pipeline.path}/checkpoints").json()[-1]["steps"] == 2)
        copy = service.http.post(f"{pipeline.path}/checkpoint/sync").json()["checkpoint_uuid"]
        done = lambda: service.http.get(f"{pipeline.path}/checkpoint/sync_status").json()["success"]  # noqa: E731
        until(lambda: done() == copy)

        hosts.end(0)
        until(lambda: told(pipeline, "hosts").startswith("host 0 at 127.0.0.2"))
        until(lambda: metric(pipeline, 'penstock_host_in{pipeline="shop",host="0"} 0'))
        hosts.processes[0] = hosts.start(0)
        until(lambda: not told(pipeline, "hosts"))

        runner = pipeline.pid
        killed([psutil.Process(runner)])
        until(lambda: pipeline.pid not in (0, runner))
        pipeline.wait_for("Running")
        assert pipeline.query("SELECT sum(c) AS n FROM sums") == [{"n": ROWS}]
        pipeline.stop()
        assert all(process.poll() is None for process in hosts.processes), "they wait for the next start"
    finally:
        hosts.close()
