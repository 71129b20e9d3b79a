"""The script of the tutorial, with the real `feldera` client against a real service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.service.real import Served

SCRIPT = Path(__file__).parents[2] / "docs" / "tutorial" / "whole_life.py"


def test_the_script_of_the_tutorial(tmp_path: Path) -> None:
    service = Served(tmp_path / "service")
    try:
        done = subprocess.run(
            [sys.executable, SCRIPT, service.url], capture_output=True, text=True, timeout=540, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr + service.log.read_text()
        assert "killed, and running again after" in done.stdout
        assert service.stop() == 0
        assert service.processes() == []
        assert "Traceback" not in service.log.read_text()
    finally:
        service.end()
