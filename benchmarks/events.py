"""What a process of the benchmark says: lines of JSON on a pipe, for Spark writes to the console."""

from __future__ import annotations

import json
import os
from typing import Any

CHANNEL = "PENSTOCK_BENCH_CHANNEL"
"""The variable with the number of the file descriptor."""


def say(event: str, **content: Any) -> None:
    """Tell the harness; nothing is buffered, for the process may be killed at any moment."""
    os.write(int(os.environ[CHANNEL]), json.dumps({"event": event, **content}).encode() + b"\n")
