"""How a run on hosts ends: in an order in which the next one is not harmed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import penstock
from penstock.errors import HostLostError, StateError
from penstock.hosts.cluster import Cluster
from penstock.hosts.config import ClusterConfig
from penstock.hosts.files import HostFiles
from penstock.trace.files import Size
from tests.hosts.running import FIRST, coordinating, wait_until


def running(tmp_path: Path, done: list[str]) -> penstock.Pipeline:
    """A pipeline that runs, as far as its end is concerned."""
    pipeline = penstock.Pipeline("p", "CREATE TABLE t (id INT);", storage=tmp_path, config={"hosts": 2})
    made: Any = pipeline
    made._controller, made._storage, made._cluster = Mock(), Mock(), Mock()
    made._storage.close.side_effect = lambda: done.append("storage")
    made._cluster.close.side_effect = lambda: done.append("hosts")
    return pipeline


@pytest.mark.parametrize("end", [penstock.Pipeline.stop, penstock.Pipeline.kill])
def test_the_hosts_are_let_go_of_before_the_directory(tmp_path: Path, end: Any) -> None:
    """Who has the directory writes into it where its coordinator is."""
    done: list[str] = []
    end(running(tmp_path, done))
    assert done == ["hosts", "storage"]


def test_the_directory_is_let_go_of_even_if_spark_does_not_end(tmp_path: Path) -> None:
    done: list[str] = []
    pipeline: Any = running(tmp_path, done)
    pipeline._cluster.close.side_effect = RuntimeError("Spark does not end")
    with pytest.raises(RuntimeError):
        pipeline.kill()
    assert done == ["storage"]


def test_the_file_of_a_successor_stays(tmp_path: Path) -> None:
    file = tmp_path / "shop" / "coordinator.json"
    with coordinating(tmp_path / "shop"):
        successor = {**json.loads(file.read_text()), "incarnation": "the next"}
        file.write_text(json.dumps(successor))
    assert json.loads(file.read_text()) == successor


def test_a_second_coordinator_is_refused_by_name(tmp_path: Path) -> None:
    from penstock.controller.storage import Storage

    first = Storage(tmp_path / "shop")
    pipeline = penstock.Pipeline(
        "p", "CREATE TABLE t (id INT);", storage=tmp_path / "shop", config={"hosts": 2}
    )
    try:
        with pytest.raises(StateError, match=rf"{tmp_path / 'shop'} is in use by process \d+"):
            pipeline.start()
    finally:
        first.close()
    assert not (tmp_path / "shop" / "coordinator.json").exists()


# -- hosts that do not answer ---------------------------------------------------------------------


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The agent of a host does not answer, though the host gives signs of life."""
    cluster = Cluster(ClusterConfig(2), tmp_path, "p", 1)
    refused = HostLostError("host 1 of 2 at http://127.0.0.3:9 does not answer", host=1)
    monkeypatch.setattr(cluster.coordinator, "refuse_silent", Mock(side_effect=refused))
    monkeypatch.setattr(cluster.coordinator, "agent", Mock(side_effect=refused))
    monkeypatch.setattr("penstock.hosts.cluster.LOST_SECONDS", 1.0)
    cluster.files = HostFiles(tmp_path, cluster.coordinator, lambda: cluster._stopped)
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    "wait",
    [lambda files: files.wait(), lambda files: files.at_hand("view-a", FIRST, Size(1, 4, "0" * 32, 1))],
    ids=["all of them", "a batch"],
)
def test_a_stop_gives_up_a_host_whose_agent_is_silent(silent: Cluster, wait: Any) -> None:
    errors: list[StateError] = []

    def work() -> None:
        try:
            wait(silent.files)
        except StateError as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: silent.waits_for)
    assert "host 1 of 2 at http://127.0.0.3:9 does not answer" in (silent.waits_for or "")
    silent.end_without_lost_hosts()
    thread.join(30)
    assert "the pipeline was stopped while it waited for a host: host 1 of 2" in str(errors.pop())
    assert silent.waits_for is None
