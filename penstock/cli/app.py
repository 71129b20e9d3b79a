"""The commands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli.report import errors_shown, read_program
from penstock.cli.run import run_program

app = typer.Typer(
    help="Keeps SQL views up to date on Apache Spark, transaction by transaction.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ProgramPath = Annotated[
    Path,
    typer.Argument(
        metavar="PROGRAM", help="File with the SQL program.", exists=True, dir_okay=False, readable=True
    ),
]


class Format(StrEnum):
    """How `explain` writes a plan."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before the command."""


@app.command()
def run(
    program: ProgramPath,
    storage: Annotated[
        Path | None,
        typer.Option(help="Directory for the state; a temporary one if not given.", file_okay=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the pipeline; the file's name if not given.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of Spark tasks that run at the same time.", min=1)] = 2,
) -> None:
    """Run a program until every input has ended and all is processed, or until Ctrl-C."""
    text = read_program(program)
    with errors_shown(program, text):
        raise typer.Exit(run_program(name or program.stem, text, storage, workers))


@app.command()
def check(program: ProgramPath) -> None:
    """Say what is wrong with a program, or that nothing is."""
    text = read_program(program)
    with errors_shown(program, text):
        penstock.check(text)
    typer.echo(f"{program}: no errors")


@app.command()
def explain(
    program: ProgramPath,
    view: Annotated[
        str | None, typer.Argument(metavar="[VIEW]", help="One view; all of them if not given.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TEXT,
) -> None:
    """Show how each view is kept up to date: the strategy of every operator, and why."""
    text = read_program(program)
    with errors_shown(program, text):
        typer.echo(penstock.explain(text, view, form.value))
