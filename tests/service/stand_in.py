"""A runner without Spark: a real process that keeps to the contract between manager and runner.

Words in the program tell it what to do: `bad` does not compile, `fails` fails when it is deployed, `breaks`
cannot stop in order, `lingers` takes a while to stop, `slow` to compile, `refused` is not taken, `differs`
waits for approval, and `shop` has tables and views. `dies-1`, `fails-1` and `stuck-1` are about replica 1
only, and so on: it ends at once, fails when it is deployed, cannot evaluate transaction 7.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.service.stand_in_pipeline import SCHEMA, Answer, StandInPipeline

DIRECTORY = Path(sys.argv[-1])

state: dict[str, Any] = {
    "deployment_id": None,
    "status": "Unavailable",
    "desired": "Unavailable",
    "details": None,
    "error": None,
    "storage": False,
    "warm": True,
    "rss_bytes": 123 << 20,
}
order: dict[str, Any] = {}
pipeline = StandInPipeline()


def replica() -> str:
    """Which replica it is, by its storage."""
    return order["storage"].rpartition("storage")[2].removeprefix("-") or "0"


def deploy(given: dict[str, Any]) -> None:
    order.update(given)
    if state["deployment_id"] is not None:
        return
    if given.get("group") is not None:
        Path(given["group"]["uri"]).mkdir(exist_ok=True)
        state["replica"] = {"leads": replica() == "0", "lag_transactions": 0, "lag_seconds": 0.25}
    state.update(deployment_id=given["deployment_id"], status="Initializing", desired=given["initial"])
    pipeline.name = given["name"]
    print(f"deployed {given['name']}", flush=True)

    def become_ready() -> None:
        time.sleep(0.2)
        words = given["program_code"].split()
        if f"dies-{replica()}" in words:
            os._exit(70)
        if f"stuck-{replica()}" in words:
            state.update(status="Paused", details={"reason": "transaction 7 cannot be evaluated"})
        elif "fails" in words or f"fails-{replica()}" in words:
            error = {"message": "it fails", "error_code": "EVALUATION", "details": {"view": "v"}}
            state.update(status="Unavailable", error=error)
        elif "differs" in given["program_code"]:
            difference = {"program_diff": {"added_views": ["by_day"], "modified_views": ["by_region"]}}
            state.update(status="AwaitingApproval", details={"reason": None, "approval_diff": difference})
        else:
            state["status"] = given["initial"]

    threading.Thread(target=become_ready, daemon=True).start()


def stop() -> None:
    time.sleep(3.0 if "lingers" in order.get("program_code", "") else 0.2)
    code = 0
    if "breaks" in order.get("program_code", ""):
        failure = {"message": "no checkpoint", "error_code": "DISK", "details": None}
        (DIRECTORY / "exit.json").write_text(json.dumps(failure))
        code = 1
    elif order:
        with (Path(order["storage"]) / "checkpoints").open("a") as file:
            file.write(order["deployment_id"] + "\n")
    if code == 0:
        (DIRECTORY / "exit.json").write_text(json.dumps({"stopped": True}))
    os._exit(code)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    token: str

    def log_message(self, *_arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if not self._allowed():
            return
        if path == "/status":
            self._answer(200, state)
        elif path == "/stats":
            self._answer(200, {"path": self.path, "pid": os.getpid(), **pipeline.stats(state["status"])})
        elif (found := pipeline.get(unquote(path), dict(parse_qsl(query)))) is not None:
            self._give(found)
        else:
            self._answer(404, {"message": "no such", "error_code": "NotFound", "details": self.path})

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        if not self._allowed():
            return
        content = self._consume()
        options = dict(parse_qsl(query))
        paused = state["status"] == "Paused"
        if (found := pipeline.post(unquote(path), options, content, paused=paused)) is not None:
            self._give(found)
            return
        if path.startswith("/ingress/"):
            self._answer(200, {"bytes": len(content), "path": self.path, "token": "a-token"})
            return
        body = json.loads(content or b"null")
        if path == "/compile":
            self._answer(200, compiled(body["program_code"]))
        elif path == "/diff":
            self._answer(200, difference(body["old"], body["new"]))
        elif path == "/deploy" and "refused" in body["program_code"]:
            self._answer(400, {"message": "not this one", "error_code": "X", "details": None})
        elif path == "/deploy":
            deploy(body)
            self._answer(202, {})
        elif path == "/stop":
            state["desired"] = "Suspended"
            self._answer(202, {})
            threading.Thread(target=stop, daemon=True).start()
        elif path in ("/pause", "/resume"):
            wanted = "Paused" if path == "/pause" else "Running"
            stuck = (state["details"] or {}).get("reason", "").startswith("transaction 7")
            if stuck and options.get("skip_transaction") != "7":
                self._answer(400, {"message": "not that one", "error_code": "STATE_ERROR", "details": None})
                return
            if stuck:
                state["details"] = None
            if "skip_transaction" in options:
                print(f"skipped {options['skip_transaction']}", flush=True)
            state.update(status=wanted, desired=wanted)
            self._answer(202, {})
        elif path == "/activate":
            self._answer(202, {})
        elif path == "/approve" and state["status"] != "AwaitingApproval":
            message = "the pipeline does not wait for an approval"
            self._answer(400, {"message": message, "error_code": "STATE_ERROR", "details": None})
        elif path == "/approve":
            state.update(status=order["initial"], details=None)
            self._answer(200, None)
        else:
            self._answer(404, {"message": "no such", "error_code": "NotFound", "details": self.path})

    def _allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.token}":
            return True
        self._answer(401, {"message": "not yours", "error_code": "Unauthorized", "details": None})
        return False

    def _consume(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
            state["details"] = {"reason": f"{len(content)} bytes"}
        self.rfile.readline()
        return content

    def _give(self, found: Answer) -> None:
        if isinstance(found.body, bytes):
            self._send(found.status, found.body, found.kind)
        elif hasattr(found.body, "__next__"):
            self._stream(found.body)
        else:
            self._answer(found.status, found.body)

    def _stream(self, chunks: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in chunks:
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            (DIRECTORY / "disconnected").touch()
            self.close_connection = True

    def _answer(self, status: int, body: Any) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def difference(old: str, new: str) -> dict[str, Any]:
    changed = [] if old == new else [f"{old} -> {new}"]
    return {
        "program_diff": {"added_tables": [], "added_views": [], "modified_views": changed},
        "program_diff_error": None,
        "added_input_connectors": [],
    }


def compiled(program: str) -> dict[str, Any]:
    if "bad" in program:
        before, _, _ = program.partition("bad")
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        message = {
            "start_line_number": line,
            "start_column": column,
            "end_line_number": line,
            "end_column": column + 2,
            "warning": False,
            "error_type": "PROGRAM_ERROR",
            "message": "bad program",
            "snippet": program,
        }
        return {"status": "SqlError", "messages": [message]}
    if "slow" in program:
        time.sleep(1.0)
    info = {
        "schema": SCHEMA if "shop" in program else {"inputs": [], "outputs": []},
        "input_connectors": {},
        "output_connectors": {},
        "udf_stubs": "",
    }
    return {"status": "Success", "program_info": info}


if __name__ == "__main__":
    Handler.token = (DIRECTORY / "token").read_text()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    this = psutil.Process()
    found = {
        "pid": this.pid,
        "started": this.create_time(),
        "port": server.server_address[1],
        "version": "stand-in",
    }
    (DIRECTORY / "runner.json.tmp").write_text(json.dumps(found))
    (DIRECTORY / "runner.json.tmp").rename(DIRECTORY / "runner.json")
    print(f"stand-in {this.pid} is up", flush=True)
    server.serve_forever()
