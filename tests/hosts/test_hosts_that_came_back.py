"""The machine of a host may have crashed: what was not synced there is looked at before it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from penstock.engine.engine import facts_of
from penstock.engine.state import State
from penstock.errors import DamagedError, HostLostError
from penstock.hosts.files import HostFiles
from penstock.trace.files import Size
from penstock.trace.host import ENVIRONMENT
from tests.hosts.test_task_on_a_host import HOST, LAYOUT, Told, rows, task


@pytest.fixture
def state(tmp_path: Path) -> Any:
    """Of two hosts, whose processes a test may change."""
    coordinator = Mock(count=2, pipeline="p", incarnation="i")
    coordinator.processes.return_value = ["p0", "p1"]
    coordinator.urls.return_value = []
    files = HostFiles(tmp_path, coordinator, lambda: False)
    yield State(files)
    files.close()


def returned(state: Any) -> None:
    state.files._coordinator.processes.return_value = ["p0", "p1 again"]


def size(host: int) -> Size:
    return Size(1, 4, "0" * 32, host)


def unverified(state: State) -> list[str]:
    return [name for batches in state.unverified().values() for name in batches]


def test_what_was_not_synced_is_looked_at(state: Any) -> None:
    assert unverified(state) == []
    state.add({("t", "durable"): size(1)})
    state.files.are_synced(state.sizes())
    state.add({("t", "here"): size(0), ("t", "there"): size(1)})
    assert unverified(state) == []
    returned(state)
    assert unverified(state) == ["there"]
    state.verified([("t", "there")])
    assert unverified(state) == [], "once is enough"


def test_also_what_was_written_while_it_came_back(state: Any) -> None:
    facts = facts_of(state, {})
    returned(state)
    assert unverified(state) == [], "somebody else asks meanwhile"
    state.add({("t", "there"): size(1)})
    state.doubt(state.files.returned_since(facts["hosts"]))
    assert unverified(state) == ["there"]


def test_a_task_of_before_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not told what to look at."""
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**HOST, "directory": str(tmp_path), "process": "p0 again"}))
    with pytest.raises(HostLostError, match="host 0 was started again since this transaction began"):
        task(tmp_path, {}, Told())


@pytest.mark.parametrize("writer", [0, 1])
def test_a_copy_tells_nothing_of_the_file_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: int
) -> None:
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**HOST, "directory": str(tmp_path)}))
    told = Told()
    task(tmp_path, {}, told).append("t", rows(1, 2), 1)
    (((_, _, name), written),) = told.found.items()
    where = {name: [writer, *written[1:3], *written[4:]]}
    reading = task(tmp_path, where, told)
    assert reading._hosts is not None
    path, _ = reading._hosts.at_hand("t", name) if writer == 0 else (_copied(tmp_path, name, written[2]), "")
    reading._unverified = {"t": {name: list(written[1:3])}}
    assert len(reading.old("t", LAYOUT)) == 1
    assert (("verified", "t", name) in told.found) == (writer == 0)
    path.write_bytes(b"torn")
    with pytest.raises(DamagedError):
        reading.old("t", LAYOUT)


def _copied(directory: Path, name: str, checksum: str) -> Path:
    written = directory / "batches" / "t" / f"{name}.arrow"
    copy = directory / "copies" / "t" / f"{name}.{checksum}.arrow"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(written.read_bytes())
    return copy
