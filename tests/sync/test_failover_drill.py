"""The script of docs/how-to/fail-over.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "how-to" / "failover_drill.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_drill() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "every order is in the sink exactly once" in done.stdout
    assert "FENCED" in done.stdout
