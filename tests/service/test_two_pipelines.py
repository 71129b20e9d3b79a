"""Two pipelines under load side by side: memory stays what it was, and nothing is left after they stop."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.service.real import Load, Pipeline, Served, until

SECONDS = 60 * float(os.environ.get("PENSTOCK_SERVICE_MINUTES", "1"))
GROWTH = 1.25


def memory(pipeline: Pipeline) -> int:
    """Of its process, its JVM and its workers: what is theirs alone."""
    process = psutil.Process(pipeline.pid)
    return sum(each.memory_full_info().uss for each in [process, *process.children(recursive=True)])


def threads(pipeline: Pipeline) -> int:
    return psutil.Process(pipeline.pid).num_threads()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = Served(tmp_path / "service", "--spares", "0")
    try:
        pipelines = [service.pipeline(name).create().start() for name in ("one", "two")]
        loads = [Load(pipeline) for pipeline in pipelines]
        began = time.monotonic()
        for load in loads:
            load.wait_for(20)
        while time.monotonic() - began < SECONDS / 3:
            time.sleep(1)
        warm = [(memory(pipeline), threads(pipeline)) for pipeline in pipelines]
        while time.monotonic() - began < SECONDS:
            time.sleep(1)
        after = [(memory(pipeline), threads(pipeline)) for pipeline in pipelines]
        manager = psutil.Process(service.process.pid)
        seen = f"{[load.batches for load in loads]} batches; (bytes, threads) {warm}, then {after}; manager"
        with capsys.disabled():
            print(f"{seen} {manager.memory_info().rss:,} bytes, {manager.num_threads()} threads")
        for load in loads:
            load.end()
            assert load.refused == 0
        for (bytes_before, threads_before), (bytes_after, threads_after) in zip(warm, after, strict=True):
            assert bytes_after < bytes_before * GROWTH, seen
            assert threads_after <= threads_before + 3, seen
        for pipeline in pipelines:
            pipeline.stop()
        until(lambda: service.processes() == [])
        assert manager.num_threads() < 60
        assert service.stop() == 0
    finally:
        service.end()
