"""A runner as a server: it says where it listens, and ends when its pipeline has."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import uvicorn

from penstock import __version__
from penstock.service.runner.app import create_app
from penstock.service.runner.boot import Boot
from penstock.service.runner.host import Host
from penstock.storage.files import write_file

TOKEN_FILE = "token"
FOUND_FILE = "runner.json"
EXIT_FILE = "exit.json"
_KEPT_SECONDS = 3600
"""The manager closes its connections when it does not need them; from here one would be closed under it."""


def serve(directory: Path, settings: Mapping[str, Any], boot: Boot | None) -> int:
    """Serve until there is nothing left to do; the exit code."""
    host = Host(directory, boot, settings.get("allowed_paths"))
    for work in (host.warm, host.keep_history):
        threading.Thread(target=work, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(host, (directory / TOKEN_FILE).read_text().strip())
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=_KEPT_SECONDS,
        )
        server = _Server(config)
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=host.stop, daemon=True).start())
        threading.Thread(target=_end_with, args=(host, server), daemon=True).start()
        _announce(directory / FOUND_FILE, listener.getsockname()[1])
        server.run(sockets=[listener])
    _write(directory / EXIT_FILE, host.failure or {"stopped": True})
    return 0 if host.failure is None else 1


class _Server(uvicorn.Server):
    """Leaves the signals to us: a pipeline that is told to end takes a checkpoint first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _end_with(host: Host, server: uvicorn.Server) -> None:
    host.ended.wait()
    server.should_exit = True


def _announce(path: Path, port: int) -> None:
    """Tell the manager where to find this process."""
    this = psutil.Process()
    _write(path, {"pid": this.pid, "started": this.create_time(), "port": port, "version": __version__})


def _write(path: Path, content: object) -> None:
    write_file(path, lambda file: file.write(json.dumps(content).encode()), durable=False)
