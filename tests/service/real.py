"""`penstock serve` as users run it: real runners, real Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.service.managers import wait_for

PROGRAM = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, n BIGINT);
CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
"""
GROUPS = 5


class Served:
    """A service in a directory; it may be killed and started again there, on the same port."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.log = directory.parent / f"{directory.name}.log"
        self._options = options
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        self.start()

    def start(self) -> None:
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock.cli", "serve", "--directory", str(self.directory)),
                    *("--port", str(self.port), *self._options),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        said = lambda: self.log.read_bytes()[begin:].decode()  # noqa: E731
        wait_for(lambda: re.search(r"listens on \S+", said()), 60, said)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        self.http.close()
        if self.process.poll() is None:
            self.kill()
        for process in self.processes():
            process.kill()

    def processes(self) -> list[psutil.Process]:
        """All runners, their JVMs and their workers."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                if str(self.directory / "runners") in " ".join(process.cmdline()):
                    found += [process, *process.children(recursive=True)]
            except psutil.Error:
                continue
        return found

    def pipeline(self, name: str) -> Pipeline:
        return Pipeline(self, name)


class Pipeline:
    """One pipeline of it."""

    def __init__(self, service: Served, name: str) -> None:
        self.service = service
        self.name = name
        self.path = f"/v0/pipelines/{name}"

    def create(self, program: str = PROGRAM, **config: Any) -> Pipeline:
        body = {
            "name": self.name,
            "program_code": program,
            "runtime_config": {"workers": 2, "fault_tolerance": {"model": "exactly_once"}, **config},
        }
        answer = self.service.http.put(self.path, json=body)
        assert answer.status_code in (200, 201), answer.text
        wait_for(lambda: self.get()["program_status"] not in ("Pending", "CompilingSql"), 120, self.get)
        return self

    def start(self, initial: str = "running") -> Pipeline:
        answer = self.service.http.post(f"{self.path}/start", params={"initial": initial})
        assert answer.status_code == 202, answer.text
        self.wait_for(initial.capitalize())
        return self

    def stop(self, *, force: bool = False) -> None:
        answer = self.service.http.post(f"{self.path}/stop", params={"force": str(force).lower()})
        assert answer.status_code == 202, answer.text
        self.wait_for("Stopped")

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = self.service.http.get(self.path).json()
        return found

    @property
    def status(self) -> str:
        return str(self.get()["deployment_status"])

    @property
    def pid(self) -> int:
        return int((self.get()["deployment_resources_status_details"] or {}).get("pid", 0))

    def wait_for(self, status: str, seconds: float = 120) -> None:
        def reached() -> bool:
            found = self.get()
            error = found["deployment_error"]
            assert error is None or found["deployment_desired_status"] != "Stopped" or status == "Stopped", (
                error
            )
            return bool(found["deployment_status"] == status)

        wait_for(reached, seconds, lambda: json.dumps(self.get())[:4000])

    def push(self, rows: list[dict[str, Any]], table: str = "t") -> httpx.Response:
        params = {"format": "json", "update_format": "raw"}
        content = "\n".join(json.dumps(row) for row in rows)
        return self.service.http.post(f"{self.path}/ingress/{table}", params=params, content=content)

    def query(self, sql: str) -> list[dict[str, Any]]:
        answer = self.service.http.get(f"{self.path}/query", params={"sql": sql, "format": "json"})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def processes(self, name: str) -> list[psutil.Process]:
        """Those below its runner with this word in their command lines."""
        found = []
        for child in psutil.Process(self.pid).children(recursive=True):
            try:
                if name in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.Error:
                continue  # it ended
        return found


class Load:
    """Pushes rows one batch after the other until it is told to end.

    A batch whose completion was not confirmed is pushed again: its rows have keys, so that changes nothing.
    """

    def __init__(self, pipeline: Pipeline, rows: int = 20) -> None:
        self.pipeline = pipeline
        self.batches = 0
        self.refused = 0
        self._rows = rows
        self._ended = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                first = self.batches * self._rows
                self._push([row(number) for number in range(first, first + self._rows)])
                self.batches += 1
        except BaseException as error:
            self._failed = error

    def _push(self, rows: list[dict[str, Any]]) -> None:
        while True:
            try:
                answer = self.pipeline.push(rows)
                if answer.status_code == 200 and self._completed(answer.json()["token"]):
                    return
            except httpx.HTTPError:
                pass  # the manager is away
            self.refused += 1
            time.sleep(0.2)

    def _completed(self, token: str) -> bool:
        while True:
            http, path = self.pipeline.service.http, f"{self.pipeline.path}/completion_status"
            answer = http.get(path, params={"token": token})
            if answer.status_code != 202:
                return answer.status_code == 200
            time.sleep(0.02)

    def wait_for(self, more: int) -> None:
        """Until so many more batches are complete."""
        target = self.batches + more
        wait_for(lambda: self.batches >= target or self._failed is not None, 180, lambda: str(self.refused))
        assert self._failed is None, self._failed

    def end(self) -> None:
        """Stop, and compare the view with the rows that were confirmed."""
        self._ended.set()
        self._thread.join(180)
        assert self._failed is None, self._failed
        expected: dict[int, list[int]] = {}
        for number in range(self.batches * self._rows):
            made = row(number)
            group = expected.setdefault(made["g"], [0, 0])
            group[0] += 1
            group[1] += made["n"]
        found = {r["g"]: [r["c"], r["s"]] for r in self.pipeline.query("SELECT * FROM sums")}
        assert found == expected


def row(number: int) -> dict[str, int]:
    return {"id": number, "g": number % GROUPS, "n": number * 7 % 1000}


def killed(processes: list[psutil.Process]) -> None:
    assert processes
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)


def until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    return wait_for(condition, seconds, lambda: "it took too long")
