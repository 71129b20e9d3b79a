"""Requests about a running pipeline reach its runner as streams, and come back as streams."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.service.manager.logs import Logs
from tests.service.managers import Manager, wait_for
from tests.service.test_service_pipelines import code, new_name


@pytest.fixture(scope="module")
def running(shared: Manager) -> str:
    name = new_name()
    shared.start(name)
    return name


def test_the_same_query_comes_through(shared: Manager, running: str) -> None:
    answer = shared.http.get(f"/v0/pipelines/{running}/stats?a=1%202&b=%C3%A4%26&b=2")
    assert answer.json()["path"] == "/stats?a=1%202&b=%C3%A4%26&b=2"


def test_names_in_paths_stay_escaped(shared: Manager, running: str) -> None:
    answer = shared.post(f"/{running}/ingress/a%20b", content=b"xyz", params={"format": "json"})
    assert answer.json() == {"bytes": 3, "path": "/ingress/a%20b?format=json", "token": "a-token"}


def test_bodies_are_passed_on_as_they_come(shared: Manager, running: str) -> None:
    """The runner has the first rows before the last are sent."""
    seen = []

    def rows() -> Iterator[bytes]:
        yield b"x" * 1000
        details = wait_for(
            lambda: shared.get(running)["deployment_runtime_status_details"], 10, lambda: "nothing arrived"
        )
        seen.append(details["reason"])
        yield b"y" * 1000

    answer = shared.post(f"/{running}/ingress/t", content=rows())
    assert answer.json()["bytes"] == 2000
    assert seen == ["1000 bytes"]


def test_answers_are_passed_on_as_they_come(shared: Manager, running: str) -> None:
    with shared.http.stream("POST", f"/v0/pipelines/{running}/egress/v", params={"format": "json"}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = answer.iter_lines()
        assert [json.loads(next(lines))["sequence_number"] for _ in range(3)] == [0, 1, 2]
    # Whoever does not listen any more is not sent to any more.
    runners = shared.directory / "runners"
    wait_for(lambda: list(runners.glob("*/disconnected")), 10, lambda: "the stream goes on")


def test_many_at_once(shared: Manager, running: str) -> None:
    failed: list[str] = []

    def push() -> None:
        for _ in range(5):
            answer = shared.post(f"/{running}/ingress/t", content=b"x" * 100)
            if answer.status_code != 200:
                failed.append(answer.text)

    threads = [threading.Thread(target=push) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_pause_and_resume(shared: Manager, running: str) -> None:
    assert shared.post(f"/{running}/pause").status_code == 202
    row = shared.wait(running, lambda row: row["deployment_status"] == "Paused")
    assert row["deployment_desired_status"] == "Paused"
    assert shared.post(f"/{running}/resume").status_code == 202
    shared.wait(running, lambda row: row["deployment_status"] == "Running")


def test_a_refusal_of_the_runner_is_passed_on(shared: Manager, running: str) -> None:
    assert code(shared.http.get(f"/v0/pipelines/{running}/time_series")) == (404, "NotFound")


def test_pipelines_that_do_not_run(shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    for method, path in (
        ("POST", "/pause"),
        ("GET", "/stats"),
        ("POST", "/ingress/t"),
        ("POST", "/checkpoint"),
    ):
        answer = shared.http.request(method, f"/v0/pipelines/{name}{path}")
        assert code(answer) == (503, "PipelineInteractionNotDeployed")
        assert answer.json()["details"] == {
            "pipeline_name": name,
            "status": "Stopped",
            "desired_status": "Stopped",
        }


def test_a_runner_that_does_not_answer(manager: Manager) -> None:
    manager.start("p")
    process = psutil.Process(manager.http.get("/v0/pipelines/p/stats").json()["pid"])
    process.suspend()
    manager.wait("p", lambda row: row["deployment_status"] == "Unavailable")
    answer = manager.http.get("/v0/pipelines/p/stats")
    assert code(answer) == (503, "PipelineInteractionUnreachable")
    process.resume()
    manager.wait("p", lambda row: row["deployment_status"] == "Running")


def test_a_runner_that_dies_under_a_request(manager: Manager) -> None:
    manager.start("p")
    process = psutil.Process(manager.http.get("/v0/pipelines/p/stats").json()["pid"])
    threading.Timer(0.5, process.kill).start()

    def rows() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x"
            time.sleep(0.1)

    answer = manager.post("/p/ingress/t", content=rows())
    assert code(answer) == (500, "PipelineInteractionCutOff")  # with 503 clients would send the rows again


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO sleeps VALUES (1)", (500, "PipelineInteractionCutOff")),
        ("SELECT * FROM sleeps", (503, "PipelineInteractionUnreachable")),
    ],
)
def test_a_runner_that_dies_under_a_query(manager: Manager, sql: str, expected: tuple[int, str]) -> None:
    manager.start("p")
    process = psutil.Process(manager.http.get("/v0/pipelines/p/stats").json()["pid"])
    threading.Timer(0.5, process.kill).start()
    assert code(manager.http.get("/v0/pipelines/p/query", params={"sql": sql})) == expected


def test_bodies_that_are_too_long(shared: Manager, running: str) -> None:
    mebibyte = 1 << 20
    said = shared.post("", content=b" " * (2 * mebibyte), headers={"Content-Type": "application/json"})
    assert code(said) == (413, "PayloadTooLarge")

    def unsaid(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield b" " * mebibyte

    header = {"Content-Type": "application/json"}
    assert code(shared.post("", content=unsaid(3), headers=header)) == (413, "PayloadTooLarge")
    assert shared.post(f"/{running}/ingress/t", content=unsaid(7)).json()["bytes"] == 7 * mebibyte
    assert code(shared.post(f"/{running}/ingress/t", content=unsaid(12))) == (413, "PayloadTooLarge")


def test_logs_are_kept_over_runs_and_followed(manager: Manager) -> None:
    manager.start("p")
    url = "/v0/pipelines/p/logs"
    once = manager.http.get(url, params={"follow": "false"})
    assert once.headers["content-type"].startswith("text/plain")
    first = once.text.splitlines()
    assert first[-1] == "deployed p"
    assert (once.headers["feldera-logs-seq"], once.headers["feldera-logs-gap"]) == ("0", "0")
    epoch = once.headers["feldera-logs-epoch"]
    manager.post("/p/stop")
    manager.wait_stopped("p")
    with manager.http.stream("GET", url, params={"cursor": f"{epoch}:{len(first)}"}) as followed:
        assert followed.headers["feldera-logs-seq"] == str(len(first))
        manager.post("/p/start")
        lines = followed.iter_lines()
        assert "is up" in next(lines)
        assert next(lines) == "deployed p"
    assert len(manager.http.get(url, params={"follow": "false"}).text.splitlines()) == len(first) + 2
    stale = manager.http.get(url, params={"follow": "false", "cursor": "other:99"})
    assert stale.text.splitlines()[: len(first)] == first


def test_logs_end_when_the_pipeline_is_deleted(manager: Manager) -> None:
    manager.create("p")
    deletion = threading.Timer(0.5, lambda: manager.http.delete("/v0/pipelines/p"))
    deletion.start()
    assert manager.http.get("/v0/pipelines/p/logs").text == ""
    deletion.join()


def test_a_long_log_is_cut(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.prepare("p")
    first = tmp_path / "p" / "logs" / "000001.log"
    with first.open("ab", buffering=0) as written:  # as a runner has it
        lines = [f"line {number}\n".encode() for number in range(30)]
        for number, line in enumerate(lines):
            written.write(line)
            logs.rotate("p", limit=50 if number < 20 else 1 << 20)
    found = b"".join(path.read_bytes() for path in sorted((tmp_path / "p" / "logs").glob("*.log")))
    assert found.splitlines(keepends=True) == lines
    assert len(list((tmp_path / "p" / "logs").iterdir())) > 2
    assert logs.tail("p", 16) == b"line 28\nline 29\n"
