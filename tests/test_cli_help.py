"""What every command has: an example, quick help, completion, and exit codes without a service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from penstock.cli import app

NOWHERE = "http://127.0.0.1:9"
HEAVY = ("fastapi", "sqlalchemy", "uvicorn", "pyspark", "pyarrow", "httpx", "pandas")


def commands(found: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    found = found or typer.main.get_command(app)
    if not hasattr(found, "commands"):
        yield words, found
        return
    for name, command in found.commands.items():
        yield from commands(command, (*words, name))


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*one, id=" ".join(one[0])) for one in commands()]
)
def test_help_ends_with_an_example(words: tuple[str, ...], command: Any) -> None:
    shown = " ".join(CliRunner().invoke(app, [*words, "--help"]).output.split())
    assert shown.endswith(command.epilog)
    assert f"penstock {' '.join(words)}" in command.epilog


def test_commands_of_the_service_have_the_same_options() -> None:
    asking = [command for _, command in commands() if any(p.name == "url" for p in command.params)]
    assert len(asking) > 35
    for command in asking:
        options = {option: p for p in command.params for option in p.opts}
        assert {"--url", "--api-key", "--format"} <= set(options)
        assert options["--api-key"].envvar == "PENSTOCK_API_KEY"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("arguments", ["['--help']", "['start', '--help']", "['debug', 'failpoints']"])
def test_help_imports_nothing_heavy(arguments: str) -> None:
    script = (
        "import sys\nfrom penstock.cli import app\n"
        f"try:\n    app({arguments})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_service_answers() -> None:
    done = run("pipelines", PENSTOCK_URL=NOWHERE)
    assert (done.returncode, done.stdout) == (5, "")
    assert "penstock serve" in done.stderr
    assert run("pipelines", "--url", "no-url").returncode == 2


def test_completion_is_silent_without_a_service() -> None:
    done = run(
        _PENSTOCK_COMPLETE="complete_bash",
        COMP_WORDS="penstock start s",
        COMP_CWORD="2",
        PENSTOCK_URL=NOWHERE,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
