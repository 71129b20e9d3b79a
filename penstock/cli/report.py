"""Errors as a person reads them: what is wrong, where, and the line itself with a mark under the column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from penstock.errors import PenstockError, ProgramError

USAGE = 2
FAILED = 1


def read_program(path: Path) -> str:
    """The text of a program; a file that is no text is a mistake in how the command was called."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        Console(stderr=True).print(Text(f"error: cannot read {path}: {error}"), soft_wrap=True)
        raise typer.Exit(USAGE) from error


@contextmanager
def errors_shown(path: Path, text: str) -> Iterator[None]:
    """Print an error of Penstock and leave with exit code 1, without a traceback."""
    try:
        yield
    except PenstockError as error:
        Console(stderr=True, highlight=False).print(describe(error, path, text), soft_wrap=True)
        raise typer.Exit(FAILED) from error


def describe(error: PenstockError, path: Path, text: str) -> Text:
    """The error, and for one with a place in the program the line it is on."""
    if not isinstance(error, ProgramError) or error.line is None:
        return Text.assemble((f"error[{error.code}]", "bold red"), f": {error}")
    statement = "" if error.statement is None else f" (in {error.statement})"
    column = error.column or 1
    shown = Text.assemble(
        (f"error[{error.code}]", "bold red"),
        (f": {error.message}{statement}\n", "bold"),
        ("  --> ", "blue"),
        f"{path}:{error.line}:{column}",
    )
    lines = text.splitlines()
    if 0 < error.line <= len(lines):
        line = lines[error.line - 1]
        number = str(error.line)
        margin = " " * len(number)
        # Tabs stay tabs before the mark, so that it stands under the column at any tab width.
        before = "".join("\t" if character == "\t" else " " for character in line[: column - 1])
        shown.append(f"\n{margin} |\n{number} | ", "blue")
        shown.append(line)
        shown.append(f"\n{margin} | ", "blue")
        shown.append(before + "^", "bold red")
    return shown
