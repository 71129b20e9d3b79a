"""Files and stdin that commands read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock.cli.exit_codes import ExitCode
from penstock.cli.report import read_program
from penstock.cli.service.refusals import CommandError

STDIN = Path("-")


def read_text(path: Path) -> str:
    """A file, or what is piped in for `-`."""
    return sys.stdin.read() if path == STDIN else read_program(path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise CommandError(ExitCode.USAGE, f"{path} is not JSON: {error}") from error
