"""The runner as a process: everything that a manager asks of it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, n DECIMAL(8, 2));
CREATE VIEW parts AS SELECT id, n / g AS part FROM t;
CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
"""


REFUSED = (
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT reflect('java.lang.System', 'nanoTime')",
    "SELECT TRANSFORM(id) USING 'cat' AS (x STRING) FROM t",
    "SELECT * FROM t WHERE id IN (SELECT TRANSFORM(id) USING 'cat' AS (x INT) FROM t)",
    "WITH x AS (SELECT TRANSFORM(id) USING 'cat' AS (x STRING) FROM t) SELECT * FROM x",
    "/* /* */ SHOW */ CREATE TEMPORARY VIEW p USING text OPTIONS (path '/etc/passwd')",
    "--\\\nSHOW\nSET a=b",
    "--\rSET a=b /*\nSHOW */",
    "DROP VIEW sums",
)
"""What no query may do."""


@dataclass
class Runner:
    """A process that was started, and a client for it."""

    directory: Path
    process: subprocess.Popen[bytes]
    client: httpx.Client

    @classmethod
    def started(cls, directory: Path) -> Runner:
        directory.mkdir(mode=0o700)
        (directory / "token").write_text("secret")
        with open(directory / "runner.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock.service.runner", str(directory)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        found = directory / "runner.json"
        until(found.exists)
        port = json.loads(found.read_text())["port"]
        headers = {"Authorization": "Bearer secret"}
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120)
        return cls(directory, process, client)

    def deploy(self, storage: Path, program: str = PROGRAM, **more: Any) -> None:
        order = {
            "deployment_id": str(uuid.uuid4()),
            "name": "p",
            "program_code": program,
            "runtime_config": {"workers": 2},
            "storage": str(storage),
            **more,
        }
        assert self.client.post("/deploy", json=order).status_code == 202
        until(lambda: self.status() not in ("Initializing", "Replaying", "Bootstrapping"))

    def status(self) -> str:
        return str(self.client.get("/status").json()["status"])

    def push(self, rows: Any, table: str = "t", **params: Any) -> str:
        params = {"format": "json", "array": "true", "update_format": "raw", **params}
        answer = self.client.post(f"/ingress/{table}", params=params, content=json.dumps(rows))
        assert answer.status_code == 200, answer.text
        token = answer.json()["token"]
        until(lambda: self.client.get("/completion_status", params={"token": token}).status_code == 200)
        return str(token)

    def sums(self) -> list[dict[str, Any]]:
        answer = self.client.get("/query", params={"sql": "SELECT * FROM sums ORDER BY g", "format": "json"})
        return [json.loads(line) for line in answer.text.splitlines()]

    def stop(self) -> int:
        self.client.post("/stop")
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    found = Runner.started(tmp_path / "runner")
    yield found
    found.kill()


def test_a_life(runner: Runner, tmp_path: Path) -> None:
    client = runner.client
    assert httpx.get(client.base_url.join("/status")).status_code == 401
    assert client.get("/status").json()["deployment_id"] is None
    assert client.get("/stats").status_code == 503
    good = client.post("/compile", json={"program_code": PROGRAM}).json()
    assert good["status"] == "Success"
    assert [f["columntype"]["type"] for f in good["program_info"]["schema"]["outputs"][1]["fields"]] == [
        "INTEGER",
        "BIGINT",
        "DECIMAL",
    ]
    bad = client.post("/compile", json={"program_code": "CREATE VIEW v AS\n SELECT x FROM nowhere;"}).json()
    assert bad["status"] == "SqlError"
    assert bad["messages"][0]["start_line_number"] == 2

    runner.deploy(tmp_path / "storage")
    assert runner.status() == "Running"
    heard: list[dict[str, Any]] = []
    listening = threading.Thread(target=listen, args=(runner, heard))
    listening.start()
    until(lambda: heard)
    runner.push([{"id": 1, "g": 1, "n": "2.50"}, {"id": 2, "g": 1, "n": "1.00"}])
    assert runner.sums() == [{"g": 1, "c": 2, "s": "3.50"}]
    until(lambda: any("json_data" in chunk for chunk in heard[:-1]))
    told = next(number for number, chunk in enumerate(heard) if "json_data" in chunk)
    assert heard[told]["json_data"] == [{"insert": {"g": 1, "c": 2, "s": "3.50"}}]
    assert heard[told + 1]["processed_steps"] == 1

    for form in ("text", "arrow_ipc", "parquet", "hash"):
        answer = client.get("/query", params={"sql": "SELECT * FROM sums", "format": form})
        assert answer.status_code == 200
        if form == "arrow_ipc":
            assert pa.ipc.open_stream(answer.content).read_all().num_rows == 1
        elif form == "parquet":
            assert pq.read_table(io.BytesIO(answer.content)).num_rows == 1
    refused = client.get("/query", params={"sql": "SELECT nothing FROM sums", "format": "json"})
    assert (refused.status_code, refused.json()["error_code"]) == (400, "AdHocQueryError")
    refused = client.post("/ingress/t", params={"format": "json"}, content=b'{"insert": {"id": "x"}}')
    assert (refused.status_code, refused.json()["error_code"]) == (400, "ParseErrors")
    refused = client.post("/ingress/u", params={"format": "json"}, content=b"{}")
    assert (refused.status_code, refused.json()["error_code"]) == (404, "UnknownInputStream")

    number = client.post("/start_transaction").json()["transaction_id"]
    assert client.post("/start_transaction").status_code == 409
    assert client.get("/stats").json()["global_metrics"]["transaction_id"] == number
    client.post("/ingress/t", params={"format": "csv"}, content=b"3,2,9.00\n")
    assert client.post("/rollback_transaction").json()["transaction_id"] == number
    assert client.post("/rollback_transaction").status_code == 409
    assert runner.sums() == [{"g": 1, "c": 2, "s": "3.50"}]
    client.post("/start_transaction")
    client.post("/ingress/t", params={"format": "csv"}, content=b"3,2,9.00\n")
    client.post("/commit_transaction")
    until(lambda: len(runner.sums()) == 2)
    client.post("/start_transaction")
    given = client.post("/ingress/t", params={"format": "csv"}, content=b"4,0,9.00\n").json()
    failed = client.post("/commit_transaction")
    assert (failed.status_code, failed.json()["error_code"]) == (400, "TransactionFailed")
    assert "did not take effect" in failed.json()["message"]
    skipped = failed.json()["details"]["transaction_id"]
    assert client.post("/resume", params={"skip_transaction": skipped}).status_code == 202
    until(lambda: runner.status() == "Running")
    gone = client.get("/completion_status", params=given)
    assert gone.status_code == 400
    assert "nothing of it took effect" in gone.json()["message"]

    taken = client.post("/checkpoint").json()
    until(lambda: client.get("/checkpoint_status").json()["success"] == taken["checkpoint_sequence_number"])
    assert client.get("/checkpoint_status", params={"incarnation_uuid": "other"}).status_code == 400
    kept = client.get("/checkpoints").json()
    assert all(0 <= found["fingerprint"] < 1 << 64 and found["size"] > 0 for found in kept)
    assert len(kept) > 0
    assert "penstock_transactions_total" in client.get("/metrics").text
    assert client.get("/metrics", params={"format": "json"}).json()
    until(lambda: client.get("/time_series").json()["samples"])
    assert client.post("/explain", json={"program_code": PROGRAM}).json()["sums"]["operators"]
    assert client.post("/checkpoint/sync").status_code == 400
    for refused_query in REFUSED:
        answer = client.get("/query", params={"sql": refused_query})
        assert answer.status_code == 400, refused_query
    env = client.get("/query", params={"sql": "SELECT '${env:HOME}' AS home", "format": "json"})
    assert json.loads(env.text) == {"home": "${env:HOME}"}
    scripted = (
        "CREATE TABLE t (id INT); CREATE VIEW v AS SELECT TRANSFORM(id) USING 'cat' AS (x STRING) FROM t;"
    )
    assert client.post("/compile", json={"program_code": scripted}).json()["status"] == "SqlError"
    inserting = {"sql": "INSERT INTO t VALUES (9, 9, 9.0)"}
    assert client.get("/query", params=inserting, headers={"penstock-role": "read"}).status_code == 403
    assert client.post("/pause").status_code == 202
    assert runner.status() == "Paused"
    refused = client.post("/ingress/t", params={"format": "csv"}, content=b"4,4,4.00\n")
    assert refused.status_code == 400
    assert client.post("/resume").status_code == 202
    assert runner.stop() == 0
    listening.join(30)


def listen(runner: Runner, heard: list[dict[str, Any]]) -> None:
    with runner.client.stream("POST", "/egress/sums", params={"format": "json"}) as stream:
        heard.extend(json.loads(line) for line in stream.iter_lines())


def test_a_killed_runner_loses_nothing(runner: Runner, tmp_path: Path) -> None:
    runner.deploy(tmp_path / "storage", initial="Paused")
    assert runner.status() == "Paused"
    token = runner.push([{"id": 1, "g": 1, "n": "1.00"}], force="true")
    runner.kill()
    again = Runner.started(tmp_path / "again")
    try:
        again.deploy(tmp_path / "storage")
        assert again.sums() == [{"g": 1, "c": 1, "s": "1.00"}]
        assert again.client.get("/completion_status", params={"token": token}).status_code == 410
        assert again.client.get("/completion_status", params={"token": "?"}).status_code == 400
    finally:
        again.kill()


def test_a_changed_program_waits_for_approval(runner: Runner, tmp_path: Path) -> None:
    runner.deploy(tmp_path / "storage")
    runner.push([{"id": 1, "g": 1, "n": "1.00"}])
    runner.stop()
    changed = PROGRAM + "CREATE VIEW large AS SELECT id FROM t WHERE n > 5;"
    again = Runner.started(tmp_path / "again")
    try:
        again.deploy(tmp_path / "storage", changed, bootstrap_policy="await_approval")
        found = again.client.get("/status").json()
        assert found["status"] == "AwaitingApproval"
        assert found["details"]["approval_diff"]["program_diff"]["added_views"] == ["large"]
        again.client.post("/approve")
        until(lambda: again.status() == "Running")
        assert again.stop() == 0
    finally:
        again.kill()
