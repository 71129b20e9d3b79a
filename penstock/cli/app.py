"""The commands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import get_console

import penstock
from penstock.cli.checkpoint import StoragePath, checkpoint
from penstock.cli.diff import show_difference
from penstock.cli.journal import as_json, journal_entries, show
from penstock.cli.report import errors_shown, read_program
from penstock.cli.run import run_program
from penstock.cli.warm_up import warm_up as make_archive
from penstock.controller.skip import skip_transaction
from penstock.failpoints import FAILPOINTS

app = typer.Typer(
    help="Keeps SQL views up to date on Apache Spark, transaction by transaction.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _program(metavar: str, help_: str) -> Any:
    return typer.Argument(metavar=metavar, help=help_, exists=True, dir_okay=False, readable=True)


ProgramPath = Annotated[Path, _program("PROGRAM", "File with the SQL program.")]


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


@app.command()
def diff(
    old: Annotated[
        Path,
        typer.Argument(
            metavar="OLD",
            help="File with the program as it was, or the storage directory that it ran on.",
            exists=True,
        ),
    ],
    new: Annotated[Path, _program("NEW", "File with the program as it will be.")],
    as_object: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show which tables and views keep their rows when a program changes, and which views are filled anew."""
    show_difference(old, new, get_console(), as_object=as_object)


journal = typer.Typer(help="Look at a pipeline's journal.", no_args_is_help=True)
app.add_typer(journal, name="journal")
app.add_typer(checkpoint, name="checkpoint")


@journal.command("show")
def journal_show(
    storage: StoragePath,
    as_lines: Annotated[bool, typer.Option("--json", help="One JSON object per record.")] = False,
) -> None:
    """Show every record that is kept: those since the oldest checkpoint that a start may go on from."""
    with errors_shown(storage, ""):
        entries = journal_entries(storage)
        if as_lines:
            for entry in entries:
                typer.echo(as_json(entry))
        else:
            show(entries, get_console())


@app.command()
def resume(
    storage: StoragePath,
    skip: Annotated[
        int,
        typer.Option("--skip-transaction", metavar="N", help="Number of the transaction to go on without."),
    ],
) -> None:
    """Go on without a transaction that could not be evaluated: nothing of it takes effect, for good."""
    with errors_shown(storage, ""):
        skip_transaction(storage, skip)
    typer.echo(f"Transaction {skip} is skipped. Run the program again to go on after it.")


@app.command("warm-up")
def warm_up() -> None:
    """Make Spark start faster on this machine: record the classes that it loads, once."""
    with errors_shown(Path(), ""):
        typer.echo(make_archive())


debug = typer.Typer(help="Tools for those who test Penstock itself.", no_args_is_help=True)
app.add_typer(debug, name="debug")


@debug.command("failpoints")
def debug_failpoints() -> None:
    """List the places where PENSTOCK_FAILPOINT=NAME[:TIME] kills the process."""
    for name, meaning in FAILPOINTS.items():
        typer.echo(f"{name:28} {meaning}")
