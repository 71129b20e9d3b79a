"""kill -9 of every process of the service, each while rows are pushed: nothing is lost or counted twice."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from tests.service.real import Load, Pipeline, Served, killed, until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = Served(tmp_path_factory.mktemp("kills") / "service")
    yield found
    found.end()


@pytest.fixture
def pipeline(service: Served, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    found = service.pipeline(request.node.name.replace("_", "-")).create().start()
    yield found
    if service.process.poll() is None:
        found.stop(force=True)


@pytest.mark.slow
def test_the_manager(service: Served, pipeline: Pipeline) -> None:
    """Its pipelines go on without it, and the next one finds them again."""
    load = Load(pipeline)
    load.wait_for(5)
    runner = pipeline.pid
    service.kill()
    time.sleep(1)
    service.start()
    load.wait_for(5)
    assert pipeline.pid == runner
    load.end()


@pytest.mark.slow
def test_a_runner(pipeline: Pipeline) -> None:
    """Noticed at once, and started again, for the pipeline is fault tolerant."""
    load = Load(pipeline)
    load.wait_for(5)
    runner = pipeline.pid
    began = time.monotonic()
    killed([psutil.Process(runner)])
    until(lambda: pipeline.pid != runner)
    noticed = time.monotonic() - began
    load.wait_for(5)
    load.end()
    assert noticed < 10  # two seconds, on a machine that does nothing else
    seen = pipeline.service.http.get(f"{pipeline.path}/events").json()
    assert len(seen) > 3


@pytest.mark.slow
def test_the_jvm(pipeline: Pipeline) -> None:
    """A runner without its JVM ends, with a word in its log, and is started again."""
    load = Load(pipeline)
    load.wait_for(5)
    runner = pipeline.pid
    killed(pipeline.processes("org.apache.spark.deploy.SparkSubmit"))
    until(lambda: pipeline.pid not in (0, runner))
    load.wait_for(5)
    load.end()
    log = pipeline.service.http.get(f"{pipeline.path}/logs", params={"follow": "false"}).text
    assert "the JVM of Spark was killed by signal 9" in log


@pytest.mark.slow
def test_a_python_worker(pipeline: Pipeline) -> None:
    """The transaction that it was part of is run again."""
    load = Load(pipeline)
    load.wait_for(5)
    runner = pipeline.pid
    for _ in range(3):
        killed(
            pipeline.processes("penstock.engine.daemon")[1:] or pipeline.processes("penstock.engine.daemon")
        )
        load.wait_for(3)
    assert pipeline.pid == runner
    load.end()


@pytest.mark.slow
def test_without_fault_tolerance_the_reason_is_told(service: Served) -> None:
    pipeline = service.pipeline("frail").create(fault_tolerance=None).start()
    began = time.monotonic()
    killed([psutil.Process(pipeline.pid)])
    until(lambda: pipeline.status == "Stopped")
    assert time.monotonic() - began < 10
    error = pipeline.get()["deployment_error"]
    assert error["error_code"] == "RunnerDied"
    assert "killed by SIGKILL" in error["message"]
    pipeline.start()
    pipeline.stop()
