"""What a runner and the processes that it starts write: to its log, without any secret."""

from __future__ import annotations

import logging
import os
import sys
import threading

from penstock.references import redacted
from penstock.service.lines import formatter


def log_to(form: str) -> None:
    """Write the log, as `text` or `json`, to what is standard output now; what the JVM and the workers write
    to theirs comes after it line by line."""
    log = os.dup(sys.stdout.fileno())
    handler = logging.StreamHandler(os.fdopen(os.dup(log), "w", buffering=1))
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(writing, stream.fileno())
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, log), name="penstock output", daemon=True).start()


def _pass_on(reading: int, log: int) -> None:
    """Never ends before the process does: those who write would wait for it."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            try:
                os.write(log, redacted(line.decode("utf-8", "replace")).encode())
            except OSError:
                continue  # the disk is full, and there is nobody to tell
