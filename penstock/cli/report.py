"""Errors as a person reads them: what is wrong, where, and the line itself with a mark under the column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.exit_codes import ExitCode
from penstock.errors import PenstockError, ProgramError


def read_program(path: Path) -> str:
    """The text of a program; a file that is no text is a mistake in how the command was called."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        Console(stderr=True).print(Text(f"error: cannot read {path}: {error}"), soft_wrap=True)
        raise typer.Exit(ExitCode.USAGE) from error


@contextmanager
def errors_shown(path: Path, text: str) -> Iterator[None]:
    """Print an error of Penstock and leave with exit code 1, without a traceback."""
    try:
        yield
    except PenstockError as error:
        Console(stderr=True, highlight=False).print(describe(error, path, text), soft_wrap=True)
        raise typer.Exit(ExitCode.FAILED) from error


def describe(error: PenstockError, path: Path, text: str) -> Text:
    """The error, and for one with a place in the program the line it is on."""
    if not isinstance(error, ProgramError) or error.line is None:
        return Text.assemble((f"error[{error.code}]", "bold red"), f": {error}")
    statement = "" if error.statement is None else f" (in {error.statement})"
    return marked(error.code, f"{error.message}{statement}", str(path), text, error.line, error.column or 1)


def marked(code: str, message: str, place: str, text: str, line_number: int, column: int) -> Text:
    """An error with the line of the program that it is on, and a mark under its column."""
    shown = Text.assemble(
        (f"error[{code}]", "bold red"),
        (f": {message}\n", "bold"),
        ("  --> ", "blue"),
        f"{place}:{line_number}:{column}",
    )
    lines = text.splitlines()
    if 0 < line_number <= len(lines):
        line = lines[line_number - 1]
        number = str(line_number)
        margin = " " * len(number)
        # Tabs stay tabs before the mark, so that it stands under the column at any tab width.
        before = "".join("\t" if character == "\t" else " " for character in line[: column - 1])
        shown.append(f"\n{margin} |\n{number} | ", "blue")
        shown.append(line)
        shown.append(f"\n{margin} | ", "blue")
        shown.append(before + "^", "bold red")
    return shown
