"""`penstock diff`: what becomes of tables and views, for a person or for a program."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.cli.report import errors_shown, read_program

if TYPE_CHECKING:
    from penstock.engine.difference import Difference


def show_difference(old: Path, new: Path, console: Console, *, as_object: bool) -> None:
    """Compare two programs; an error is shown with the program that it is in."""
    from penstock.engine.difference import difference  # imports Spark, which `penstock --help` does not need
    from penstock.engine.programs import identified

    programs = []
    for path in (old, new):
        text = _text(path)
        with errors_shown(path, text):
            programs.append(identified(text))
    found = difference(*programs)
    if as_object:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        console.print(_table(found))


def _text(path: Path) -> str:
    """The program in a file, or the one that a storage directory was last used by."""
    if not path.is_dir():
        return read_program(path)
    from penstock.controller.stored import program_of

    with errors_shown(path, ""):
        return program_of(path)


def _table(found: Difference) -> Table:
    table = Table("", "name", "what becomes of it", "why")
    for row in found.rows():
        table.add_row(*(escape(text) for text in row))
    return table
