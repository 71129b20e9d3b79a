"""Managers as real processes, and what tests ask of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

STAND_IN = Path(__file__).parent / "stand_in.py"

_MAIN = """
import sys
from pathlib import Path
from penstock.service.manager.server import serve
from penstock.service.manager.settings import Settings

settings = Settings(
    directory=Path(sys.argv[1]), port=0, spares=int(sys.argv[2]), auth=sys.argv[3] == "auth",
    runner_command=(sys.executable, sys.argv[4]), max_request_bytes=1 << 20, max_ingress_bytes=8 << 20,
)
serve(settings, lambda text: print(text, flush=True))
"""


class Manager:
    """A manager in a process of its own, with stand-ins for its runners."""

    def __init__(self, directory: Path, *, spares: int = 1, auth: bool = False) -> None:
        self.directory = directory
        self.log = directory.parent / f"{directory.name}.log"
        with self.log.open("ab") as output:
            begin = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, directory, str(spares), "auth" if auth else "-", STAND_IN],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        line = wait_for(lambda: self._listening(begin), 30, self.log.read_text)
        self.url = line.split()[-1]
        headers = {}
        if auth:
            headers["Authorization"] = "Bearer " + (directory / "first-api-key").read_text().strip()
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)

    def _listening(self, begin: int) -> str | None:
        assert self.process.poll() is None, self.log.read_text()
        lines = self.log.read_bytes()[begin:].decode().splitlines(keepends=True)
        return next((line for line in lines if "listens on" in line and line.endswith("\n")), None)

    def kill(self) -> None:
        """As if the power of this one process was cut."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        self.http.close()
        if self.process.poll() is None:
            self.kill()
        for process in self.runners():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def runners(self) -> list[psutil.Process]:
        """The processes of the runners of this directory."""
        found = []
        for process in psutil.process_iter():
            try:
                arguments = process.cmdline()
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if any(argument.startswith(str(self.directory / "runners")) for argument in arguments):
                found.append(process)
        return found

    # -- requests ---------------------------------------------------------------------------------

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.http.post(f"/v0/pipelines{path}", **options)

    def get(self, name: str) -> dict[str, Any]:
        answer = self.http.get(f"/v0/pipelines/{name}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def create(self, name: str, program: str = "good", **runtime_config: Any) -> dict[str, Any]:
        body = {"name": name, "program_code": program, "runtime_config": runtime_config}
        answer = self.post("", json=body)
        assert answer.status_code == 201, answer.text
        return self.wait(name, lambda row: row["program_status"] not in ("Pending", "CompilingSql"))

    def start(self, name: str, program: str = "good", **runtime_config: Any) -> dict[str, Any]:
        """A new pipeline that runs."""
        self.create(name, program, **runtime_config)
        assert self.post(f"/{name}/start").status_code == 202
        return self.wait(name, lambda row: row["deployment_status"] == "Running")

    def wait(self, name: str, until: Callable[[dict[str, Any]], Any], seconds: float = 20) -> dict[str, Any]:
        """The pipeline as soon as it is as it should be."""

        def look() -> dict[str, Any] | None:
            row = self.get(name)
            return row if until(row) else None

        return wait_for(look, seconds, lambda: f"{self.get(name)}\n{self.log.read_text()}")

    def wait_stopped(self, name: str) -> dict[str, Any]:
        return self.wait(name, lambda row: row["deployment_status"] == "Stopped")


def wait_for(look: Callable[[], Any], seconds: float, why: Callable[[], str]) -> Any:
    """`seconds`: on a machine that has nothing else to do."""
    deadline = time.monotonic() + 10 * seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {why()}")
