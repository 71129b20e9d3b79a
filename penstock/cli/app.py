"""The commands and their options; what they do is in the modules beside this one.

What a command needs is imported when it is called: Spark, the web server and the database take seconds.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import get_console

import penstock
from penstock.cli.checkpoint import StoragePath, checkpoint
from penstock.cli.diff import show_difference
from penstock.cli.exit_codes import ExitCode
from penstock.cli.report import errors_shown, read_program
from penstock.cli.serve import serve as serve_pipelines
from penstock.cli.service.commands import add_commands
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.running import resume as resume_pipeline
from penstock.cli.service.session import (
    NameOrStorage,
    NoWait,
    Session,
    Timeout,
    service_command,
    storage_of,
)
from penstock.failpoints import FAILPOINTS

app = typer.Typer(
    help="Keeps SQL views up to date on Apache Spark, transaction by transaction.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
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


@app.command(epilog="Example: penstock run examples/shop.sql --storage ./shop-run")
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
    hosts: Annotated[
        int | None,
        typer.Option(help="Run on so many hosts, each started with 'penstock host'.", min=2),
    ] = None,
    address: Annotated[
        str, typer.Option(help="With --hosts: the address of this machine that they can reach.")
    ] = "127.0.0.1",
    master: Annotated[
        str | None,
        typer.Option(help="With --hosts: the master of a cluster that is there already.", metavar="URL"),
    ] = None,
) -> None:
    """Run a program until every input has ended and all is processed, or until Ctrl-C."""
    from penstock.cli.run import run_program

    text = read_program(program)
    there = {} if master is None else {"master": master}
    several = None if hosts is None else {"hosts": hosts, "coordinator": {"address": address, **there}}
    with errors_shown(program, text):
        raise typer.Exit(run_program(name or program.stem, text, storage, workers, hosts=several))


@app.command(
    epilog="Example: penstock replica examples/shop.sql --group s3://bucket/shop --storage ./shop-replica"
)
def replica(
    program: ProgramPath,
    group: Annotated[
        str,
        typer.Option(help="Where the group is: a directory that all replicas see, or s3://bucket/folder."),
    ],
    storage: Annotated[
        Path, typer.Option(help="Directory for the state of this replica alone.", file_okay=False)
    ],
    log: Annotated[
        str | None,
        typer.Option(help="sqlite:///PATH or postgresql://..., if the group's log is not in the same place."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="URL of a store that speaks S3's protocol.")] = None,
    lease: Annotated[
        float,
        typer.Option(help="Seconds without a sign of life after which a replica counts as gone.", min=1),
    ] = 10.0,
    name: Annotated[
        str | None, typer.Option(help="Name of the pipeline and of the group; the file's name if not given.")
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(help="A later one than runs is read-only until it is promoted.", min=0),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of Spark tasks that run at the same time.", min=1)] = 2,
) -> None:
    """Run a program as one of several replicas, which share its inputs and outputs and agree."""
    from penstock.cli.run import run_program

    place = {"uri": group, "log_uri": log, "endpoint": endpoint, "lease_seconds": lease}
    place["generation"] = generation
    given = {key: value for key, value in place.items() if value is not None}
    text = read_program(program)
    with errors_shown(program, text):
        raise typer.Exit(run_program(name or program.stem, text, storage, workers, given))


@app.command(epilog="Example: penstock host --index 0 --coordinator ./shop-run --storage ./shop-host-0")
def host(
    index: Annotated[int, typer.Option(help="Which of the hosts it is, counted from 0.", min=0)],
    coordinator: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="The storage directory of the pipeline, the file coordinator.json in it, or http://HOST:PORT.",
        ),
    ],
    storage: Annotated[
        Path, typer.Option(help="Directory for the state of this host alone.", file_okay=False)
    ],
    address: Annotated[
        str, typer.Option(help="Address of this machine, at which the others can reach it.")
    ] = "127.0.0.1",
    secret_file: Annotated[
        Path | None,
        typer.Option(help="A copy of hosts.secret of the pipeline's storage, if the place is a URL."),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Memory of this machine that Spark may give to executors.")
    ] = "2g",
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run no Spark worker: tell executors of a cluster that is there already by this file.",
        ),
    ] = None,
) -> None:
    """Be one of the hosts of a pipeline, until Ctrl-C: keep its part of the state, and run Spark's tasks."""
    from penstock.cli.host import run_host
    from penstock.hosts.process import Options

    with errors_shown(storage, ""):
        options = Options(index, coordinator, storage, address, secret_file, memory, beside=beside)
        raise typer.Exit(run_host(options))


@app.command(epilog="Example: penstock promote shop 2 --group s3://bucket/shop")
def promote(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the group.")],
    generation: Annotated[int, typer.Argument(metavar="GENERATION", help="The one to take over.", min=1)],
    group: Annotated[str, typer.Option(help="Where the group is.")],
    log: Annotated[str | None, typer.Option(help="Where its log is, if not in the same place.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="URL of a store that speaks S3's protocol.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also if it is not ready.")] = False,
) -> None:
    """Let a new generation of replicas take over from the one that runs, which may write no more."""
    from penstock.replica.config import GroupConfig
    from penstock.replica.promotion import promote as promoted

    place = {"uri": group, "log_uri": log, "endpoint": endpoint}
    with errors_shown(Path(), ""):
        config = GroupConfig.of({key: value for key, value in place.items() if value is not None}, name)
        before = promoted(config, generation, force=force)
    typer.echo(f"generation {generation} of {name} runs; generation {before} may write no more")


@app.command(epilog="Example: penstock check examples/shop.sql")
def check(program: ProgramPath) -> None:
    """Say what is wrong with a program, or that nothing is."""
    text = read_program(program)
    with errors_shown(program, text):
        penstock.check(text)
    typer.echo(f"{program}: no errors")


@app.command(epilog="Example: penstock explain examples/shop.sql by_region --format mermaid")
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


@app.command(epilog="Example: penstock diff old.sql new.sql")
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


@journal.command("show", epilog="Example: penstock journal show ./shop-run")
def journal_show(
    storage: StoragePath,
    as_lines: Annotated[bool, typer.Option("--json", help="One JSON object per record.")] = False,
) -> None:
    """Show every record that is kept: those since the oldest checkpoint that a start may go on from."""
    from penstock.cli.journal import as_json, journal_entries, show

    with errors_shown(storage, ""):
        entries = journal_entries(storage)
        if as_lines:
            for entry in entries:
                typer.echo(as_json(entry))
        else:
            show(entries, get_console())


def resume(
    session: Session,
    name: NameOrStorage,
    skip: Annotated[
        int | None,
        typer.Option("--skip-transaction", metavar="N", help="Number of the transaction to go on without."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Of a replica's directory: where its group is.")] = None,
    log: Annotated[
        str | None, typer.Option(help="Where the group's log is, if not in the same place.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="URL of a store that speaks S3's protocol.")] = None,
    timeout: Timeout = None,
    no_wait: NoWait = False,
) -> None:
    """Have a paused pipeline of the service take in again; or go on without a transaction that failed.

    A directory is the storage of a pipeline that `penstock run` ran: there --skip-transaction is required;
    or of `penstock replica`: there --group, too. Anything else is the name of a pipeline of the service. A
    transaction that is skipped takes no effect, for good.
    """
    storage = storage_of(name)
    if storage is None:
        resume_pipeline(session, name, skip, timeout, no_wait=no_wait)
        return
    if skip is None:
        raise CommandError(ExitCode.USAGE, f"{name} is a directory: say what to skip with --skip-transaction")
    from penstock.controller.skip import skip_transaction

    with errors_shown(storage, ""):
        place = {"uri": group, "log_uri": log, "endpoint": endpoint}
        given = {key: value for key, value in place.items() if value is not None}
        skip_transaction(storage, skip, given or None)
    session.out.answer(
        {"transaction": skip, "skipped": True},
        f"Transaction {skip} is skipped. Run the program again to go on after it.",
    )


service_command(app, "resume", "penstock resume shop")(resume)
add_commands(app)
app.command("serve", epilog="Example: penstock serve --directory /var/lib/penstock --port 8080")(
    serve_pipelines
)


@app.command("warm-up", epilog="Example: penstock warm-up")
def warm_up() -> None:
    """Make Spark start faster on this machine: record the classes that it loads, once."""
    from penstock.cli.warm_up import warm_up as make_archive

    with errors_shown(Path(), ""):
        typer.echo(make_archive())


debug = typer.Typer(help="Tools for those who test Penstock itself.", no_args_is_help=True)
app.add_typer(debug, name="debug")


@debug.command("failpoints", epilog="Example: penstock debug failpoints")
def debug_failpoints() -> None:
    """List the places where PENSTOCK_FAILPOINT=NAME[:TIME] kills the process."""
    for name, meaning in FAILPOINTS.items():
        typer.echo(f"{name:28} {meaning}")
