"""`penstock serve`: the command itself."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from tests.service.managers import wait_for

COMMAND = [sys.executable, "-m", "penstock.cli", "serve"]


def start(directory: Path, log: Path, *options: str) -> tuple[subprocess.Popen[bytes], str]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "--directory", directory, "--port", "0", "--spares", "0", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    found = wait_for(lambda: re.search(r"listens on (\S+)", log.read_text()), 60, log.read_text)
    return process, found[1]


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, url = start(tmp_path / "service", log)
    try:
        with httpx.Client(base_url=url, trust_env=False) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v0/pipelines").json() == []
        assert url.startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert "Stopping" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert (tmp_path / "service" / "manager.db").exists()


def test_it_ends_in_order_by_sigterm_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, _ = start(tmp_path / "service", log, "--log-format", "json")
    try:
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()


def test_beyond_this_machine_it_wants_keys(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, url = start(tmp_path / "service", log, "--host", "0.0.0.0")
    try:
        answer = httpx.get(url.replace("0.0.0.0", "127.0.0.1") + "/v0/pipelines", trust_env=False)
        assert answer.status_code == 401
    finally:
        process.kill()
        process.wait()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = subprocess.run(
            [*COMMAND, "--directory", tmp_path, "--port", port], capture_output=True, text=True, timeout=60
        )
    assert found.returncode == 1
    assert "error[SERVICE]" in found.stderr
    assert port in found.stderr
