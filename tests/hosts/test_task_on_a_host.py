"""What a task on a host reads: batches that can have its keys, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.trace.host import ENVIRONMENT
from penstock.trace.rows import Layout, Rows, Span
from penstock.trace.task import Report, ReportParam, Task

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


def task(directory: Path, where: dict[str, list[Any]], told: Told) -> Task:
    """On host 0, with these batches of the trace `t`."""
    facts = {
        "transaction": 1,
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
