"""What a task on a host reads: batches that can have its keys, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import HostError
from penstock.hosts.duty import OwnFiles
from penstock.trace import seen
from penstock.trace.host import ENVIRONMENT, FETCHED, HELD, Hosts
from penstock.trace.rows import Layout, Rows, Span
from penstock.trace.seen import NO_TRANSACTION
from penstock.trace.task import Report, ReportParam, Task
from tests.hosts.running import FIRST, PIPELINE, RUN, SECOND, Alone

LAYOUT = Layout((pa.int64(),))
HOST = {"pipeline": "p", "incarnation": "i", "index": 0, "count": 2, "token": "t", "process": "p0"}


class Told:
    """In the place of the accumulator that brings facts to the driver."""

    def __init__(self) -> None:
        self.found: Report = {}

    def add(self, facts: Report) -> None:
        ReportParam().addInPlace(self.found, facts)


def rows(*keys: int) -> Rows:
    k = np.array(keys, np.int64)
    return Rows(LAYOUT, k, k, (pa.array(k),), (np.ones(len(k), np.int64),))


def task(
    directory: Path,
    where: dict[str, list[Any]],
    told: Told,
    transaction: int = 1,
    program: tuple[int, str] = (1, "f1"),
) -> Task:
    """On host 0, with these batches of the trace `t`."""
    facts = {
        "transaction": transaction,
        "initial": False,
        "now": "",
        "run": "0123abcd",
        "inputs": {},
        "owners": {},
        "owner_names": [],
        "unverified": {},
        "sources": {},
        "kept": [],
        "written": {},
        "directory": str(directory),
        "dead_letters": str(directory / "dead-letters"),
        "traces": {"t": dict.fromkeys(where, 1)},
        "hosts": {
            "pipeline": "p",
            "incarnation": "i",
            "program": list(program),
            "processes": ["p0", "p1"],
            "agents": ["http://127.0.0.1:9", "http://127.0.0.1:9"],
            "where": {"t": where},
        },
    }
    return Task(facts, told)  # type: ignore[arg-type]


def test_a_batch_of_another_host_is_fetched_only_for_its_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**HOST, "directory": str(tmp_path)}))
    told = Told()
    task(tmp_path, {}, told).append("t", rows(-9, -5, -1), 1)
    ((key, written),) = told.found.items()
    assert key[:2] == ("batch", "t")
    assert written[3:] == (0, -9, -1), "its host, its first key and its last"
    elsewhere = [1, 100, "checksum", 1, 50]  # nobody listens where host 1 should
    reading = task(tmp_path, {key[2]: [0, *written[1:3], *written[4:]], "elsewhere": elsewhere}, told)
    assert reading.lookup("t", LAYOUT, np.array([-5, 0], np.int64)).k.tolist() == [-5]
    assert reading.lookup("t", LAYOUT, np.array([51, 60], np.int64)).k.tolist() == []
    assert reading.old("t", LAYOUT, Span(51, 60)) == []
    with pytest.raises(Exception, match=r"host 1 at http://127\.0\.0\.1:9 does not answer"):
        reading.lookup("t", LAYOUT, np.array([-5, 1], np.int64))


@pytest.mark.parametrize(
    ("transaction", "program", "why"),
    [
        (4, (2, "f2"), "a task is of transaction 4, and it has seen one of 5"),
        (5, (2, "f3"), r"a task is of program 2 \(f3\) of this run, and it runs program 2 \(f2\)"),
        (6, (1, "f1"), r"a task is of program 1 \(f1\) of this run, and it runs program 2 \(f2\)"),
    ],
)
def test_a_task_that_comes_too_late_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transaction: int, program: tuple[int, str], why: str
) -> None:
    """Of a transaction that another one came after, or of a program that is not run any more."""
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**HOST, "directory": str(tmp_path)}))
    seen.begin(tmp_path, "i")
    task(tmp_path, {}, Told(), 7, (1, "f1"))
    task(tmp_path, {}, Told(), 5, (2, "f2"))
    task(tmp_path, {}, Told(), NO_TRANSACTION, (2, "f2"))
    with pytest.raises(HostError, match=f"host 0: {why}; nothing was done"):
        task(tmp_path, {}, Told(), transaction, program)
    task(tmp_path, {}, Told(), 5, (2, "f2"))  # it is run again
    seen.begin(tmp_path, "i")  # the host was started again
    with pytest.raises(HostError, match=why):
        task(tmp_path, {}, Told(), transaction, program)


def test_a_task_of_a_run_that_is_over_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**HOST, "directory": str(tmp_path)}))
    seen.begin(tmp_path, "i")
    task(tmp_path, {}, Told(), 7)
    seen.begin(tmp_path, "the next")
    with pytest.raises(HostError, match="a task is of incarnation i, and it is of the next by now"):
        task(tmp_path, {}, Told(), 8)


def test_what_was_half_written_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**HOST, "directory": str(tmp_path)}))
    (tmp_path / "seen.json").write_text('{"incarnation": "i", "num')
    task(tmp_path, {}, Told(), 3)
    with pytest.raises(HostError, match="a task is of transaction 2"):
        task(tmp_path, {}, Told(), 2)


def test_a_copy_of_another_attempt_is_none(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a batch is the same in each attempt of its transaction, and what is in it may not be."""
    here = {**HOST, "pipeline": PIPELINE, "incarnation": alone.membership.incarnation, "token": alone.token}
    monkeypatch.setenv(ENVIRONMENT, json.dumps({**here, "directory": str(tmp_path)}))
    facts = {"pipeline": PIPELINE, "incarnation": alone.membership.incarnation, "program": [1, "f"]}
    facts |= {"agents": ["", alone.url], "processes": ["p0", "p1"], "where": {"t": {}}}
    found = []
    for attempt in (b"first", b"second"):
        content = alone.put("t", FIRST, attempt)
        hosts = Hosts.of({**facts, "where": {"t": {FIRST: [1, content.bytes, content.checksum]}}}, 1)
        for how in (FETCHED, HELD):
            path, came = hosts.at_hand("t", FIRST)
            assert (came, path.read_bytes()) == (how, attempt)
        found.append(path)
    own = OwnFiles(tmp_path)
    own.remove([("t", SECOND)])
    assert all(path.exists() for path in found)
    own.discard(1, RUN)
    assert not any(path.exists() for path in found)
