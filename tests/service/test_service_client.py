"""The `feldera` package from PyPI, unchanged, against the manager."""

from __future__ import annotations

from typing import Any

import feldera
import pytest
from feldera.enums import FaultToleranceModel, PipelineStatus, StorageStatus
from feldera.runtime_config import RuntimeConfig

from tests.service.managers import Manager


@pytest.fixture
def client(manager: Manager) -> Any:
    return feldera.FelderaClient(manager.url)


def test_a_life(manager: Manager, client: Any) -> None:
    assert client.get_config().edition.is_enterprise()
    config = RuntimeConfig(
        workers=2, clock_resolution="2s", fault_tolerance_model=FaultToleranceModel.ExactlyOnce
    )
    pipeline = feldera.PipelineBuilder(client, "p", "good", runtime_config=config).create_or_replace()
    assert pipeline.status() == PipelineStatus.STOPPED
    pipeline.start()
    assert pipeline.status() == PipelineStatus.RUNNING
    pipeline.pause()
    assert pipeline.status() == PipelineStatus.PAUSED
    pipeline.resume()
    assert pipeline.status() == PipelineStatus.RUNNING
    pipeline.stop(force=False)
    pipeline.start_paused()
    assert pipeline.status() == PipelineStatus.PAUSED
    pipeline.stop(force=True)
    assert pipeline.storage_status() == StorageStatus.INUSE
    pipeline.modify(sql="other")
    assert (pipeline.version(), pipeline.program_version()) == (2, 2)
    with client.resume_pipeline_logs("p") as logs:
        assert logs.position.gap == 0
        assert "is up" in next(iter(logs))
    pipeline.clear_storage()
    pipeline.delete()
    assert client.pipelines() == []


def test_what_it_says_of_errors(manager: Manager, client: Any) -> None:
    with pytest.raises(RuntimeError, match="bad program"):
        feldera.PipelineBuilder(client, "bad", "bad").create()
    pipeline = feldera.PipelineBuilder(client, "p", "fails").create()
    with pytest.raises(RuntimeError, match="it fails"):
        pipeline.start()
    with pytest.raises(RuntimeError, match="already exists"):
        feldera.PipelineBuilder(client, "p", "good").create()
