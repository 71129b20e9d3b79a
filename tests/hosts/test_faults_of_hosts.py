"""What hosts do not do is no fault of a transaction: it is run again, and nobody is asked to skip it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import penstock
from penstock.engine.engine import _ATTEMPTS, Engine
from penstock.engine.failure import evaluation_error
from penstock.errors import HostError, HostLostError
from tests.hosts.running import wait_until

FAULTS = [
    ("HostLostError", "host 1 at http://127.0.0.1:9 does not answer"),
    ("HostError", "host 1 refused: the host at 127.0.0.3: something went wrong; the log there says what"),
]


def failed(kind: str, text: str) -> PySparkException:
    """What Spark says when a task fails so."""
    return PySparkException(f"Traceback (most recent call last):\npenstock.errors.{kind}: {text}\n\tat java")


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_a_host_is_to_blame_and_not_the_transaction(kind: str, text: str) -> None:
    error = evaluation_error(failed(kind, text), 7, {})
    assert (type(error).__name__, str(error)) == (kind, text)


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_a_transaction_is_run_until_the_hosts_do_what_they_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, text: str
) -> None:
    monkeypatch.setattr("penstock.engine.engine._PAUSE_SECONDS", 0.01)
    run, mended, tried = Engine._run_wave, threading.Event(), []

    def run_wave(self: Engine, *given: Any) -> Any:
        if tried and not mended.is_set():
            tried.append(given)
            raise failed(kind, text)
        return run(self, *given)

    monkeypatch.setattr(Engine, "_run_wave", run_wave)
    program = "CREATE TABLE t (id INT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t;"
    with penstock.Pipeline("p", program, storage=tmp_path, config={"workers": 1}) as pipeline:
        tried.append(())
        pipeline.insert("t", [{"id": 1}])
        enough = _ATTEMPTS + 2 if kind == "HostLostError" else 3
        wait_until(lambda: pipeline.failure == text and len(tried) > enough)
        assert pipeline.failure_code == (HostLostError if kind == "HostLostError" else HostError).code
        assert pipeline.state == "Running"
        mended.set()
        pipeline.flush()
        assert pipeline.failure is None
        assert pipeline.query("SELECT n FROM v").to_pylist() == [{"n": 1}]
