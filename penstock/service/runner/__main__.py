"""`python -m penstock.service.runner DIRECTORY`: see docs/architecture.md, "The service"."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.service.runner.boot import Boot
from penstock.service.runner.output import log_to

SETTINGS_FILE = "settings.json"


def main(directory: Path) -> int:
    """Start Spark, and meanwhile import the rest and serve; the exit code."""
    settings = _settings(directory / SETTINGS_FILE)
    log_to(settings.get("log_format", "text"))
    boot = _boot(settings)
    from penstock.service.runner.serving import serve

    return serve(directory, settings, boot)


def _boot(settings: Mapping[str, Any]) -> Boot | None:
    """None if Spark comes with the hosts of the pipeline."""
    if settings.get("hosts", 1) > 1:
        return None
    return Boot(settings.get("workers") or os.cpu_count() or 2, settings.get("spark") or {})


def _settings(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # whatever threads of Spark are left
