"""Why a process ended, as an error of its pipeline."""

from __future__ import annotations

from typing import Any

from penstock.service.errors import error_body
from penstock.service.manager.processes import exit_reason
from penstock.service.manager.runners import Runner


def ending(runner: Runner) -> dict[str, Any]:
    """Why a runner ended: what it said itself, or what is known from outside."""
    said = runner.failure()
    lines = runner.last_lines()
    reason = exit_reason(runner.pid)
    if said is not None:
        details = said.get("details")
        return error_body(
            said.get("error_code") or "RunnerFailed",
            said["message"],
            {**(details if isinstance(details, dict) else {"details": details}), "log": lines},
        )
    return error_body(
        "RunnerDied",
        f"The pipeline's process {reason}. Its log ends with:\n" + "\n".join(lines),
        {"reason": reason, "exit_code": runner.exit_code, "log": lines},
    )
