"""A service of its own, and what a client asks of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.children import RunError
from benchmarks.environments import ROOT
from benchmarks.harness import tail
from benchmarks.service.rows import PROGRAM

RAW = {"format": "json", "update_format": "raw"}
_POLL_SECONDS = 0.1


class Client:
    """One pipeline of a service; clients of several threads use one each."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.path = f"/v0/pipelines/{name}"
        self.name = name
        self.http = httpx.Client(base_url=url, timeout=300, trust_env=False)

    def create(self) -> None:
        config = {"workers": 2, "fault_tolerance": {"model": "exactly_once"}}
        body = {"name": self.name, "program_code": PROGRAM, "runtime_config": config}
        self._asked("PUT", self.path, json=body)
        while (status := self.get()["program_status"]) != "Success":
            if status.endswith("Error"):
                raise RunError(f"the program is not compiled: {status}")
            time.sleep(_POLL_SECONDS)

    def start(self) -> float:
        """Seconds from the request to Running."""
        began = time.monotonic()
        self._asked("POST", f"{self.path}/start")
        while (found := self.get())["deployment_status"] != "Running":
            if found["deployment_error"] is not None:
                raise RunError(f"the pipeline did not start: {found['deployment_error']['message']}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def stop(self) -> None:
        self._asked("POST", f"{self.path}/stop", params={"force": "true"})
        while self.get()["deployment_status"] != "Stopped":
            time.sleep(_POLL_SECONDS)

    def clear(self) -> None:
        self._asked("POST", f"{self.path}/clear")
        while self.get()["storage_status"] != "Cleared":
            time.sleep(_POLL_SECONDS)

    def get(self) -> dict[str, Any]:
        return dict(self._asked("GET", self.path).json())

    def push(self, lines: bytes) -> str:
        return str(
            self._asked("POST", f"{self.path}/ingress/events", params=RAW, content=lines).json()["token"]
        )

    def wait(self, token: str) -> None:
        """Until the rows are in the view, and on disk. Each answer takes a moment if they are not."""
        while (
            self._asked("GET", f"{self.path}/completion_status", params={"token": token}).status_code == 202
        ):
            pass

    def totals(self) -> dict[int, tuple[int, int]]:
        return {row["kind"]: (row["n"], row["amount"]) for row in self.query("SELECT * FROM totals")}

    def query(self, sql: str) -> list[dict[str, Any]]:
        answer = self._asked("GET", f"{self.path}/query", params={"sql": sql, "format": "json"})
        return [json.loads(found) for found in answer.text.splitlines()]

    def memory(self) -> int:
        return int(self._asked("GET", f"{self.path}/stats").json()["global_metrics"]["rss_bytes"])

    def _asked(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer = self.http.request(method, path, **more)
        if answer.is_error:
            raise RunError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer


@contextmanager
def served(directory: Path, *options: str) -> Iterator[str]:
    """The URL of a new service, which ends with the block."""
    directory.mkdir()
    log = directory / "service.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock.cli", "serve", "--directory", str(directory / "service")),
                *("--port", "0", *options),
            ],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while "listens on" not in (said := log.read_text()):
            if process.poll() is not None:
                raise RunError(f"penstock serve: {tail(log)}")
            time.sleep(_POLL_SECONDS)
        yield said.partition("listens on")[2].split()[0]
    finally:
        process.terminate()
        process.wait()
