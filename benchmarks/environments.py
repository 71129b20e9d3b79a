"""An environment of its own for each peer that is not part of Penstock's, made when it is first needed."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.systems import Entry

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".bench-envs"


class NotAvailableError(Exception):
    """A peer cannot be installed here; says why in one line."""


def interpreter(entry: Entry) -> Path:
    """The Python that runs a system; installs its packages if that was not done before."""
    return python_with(entry.environment, entry.requirements)


def python_with(name: str, requirements: tuple[str, ...]) -> Path:
    """The Python of an environment with these packages; this one if there are none."""
    if not requirements:
        return Path(sys.executable)
    directory = ENVIRONMENTS / name
    python = directory / "bin" / "python"
    complete = directory / "requirements.txt"
    wanted = "\n".join(requirements)
    if not complete.exists() or complete.read_text() != wanted:
        _install(directory, python, requirements)
        complete.write_text(wanted)  # written last: an interrupted installation is made again
    return python


def _install(directory: Path, python: Path, requirements: tuple[str, ...]) -> None:
    venv.create(directory, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"]
        reasons = [line for line in lines if line.startswith("ERROR")] or lines
        raise NotAvailableError(reasons[-1].removeprefix("ERROR: "))
