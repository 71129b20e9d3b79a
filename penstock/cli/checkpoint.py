"""`penstock checkpoint`: look at checkpoints, take and name them, go back to one.

Most commands are about a storage directory; those about a pipeline of the service are in `service`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.exit_codes import ExitCode
from penstock.cli.report import errors_shown
from penstock.cli.service.checkpoints import add_commands, show_checkpoints
from penstock.cli.service.session import NameOrStorage, Session, service_command, storage_of
from penstock.cli.units import age, size

if TYPE_CHECKING:
    from penstock.checkpoint.check import Progress as Report

checkpoint = typer.Typer(
    help="Look at a pipeline's checkpoints, name them, check them, go back to one.", no_args_is_help=True
)

StoragePath = Annotated[
    Path,
    typer.Argument(metavar="STORAGE", help="The pipeline's storage directory.", exists=True, file_okay=False),
]
Reference = Annotated[str, typer.Option("--from", metavar="UUID|NAME", help="The checkpoint to go back to.")]
Json = Annotated[bool, typer.Option("--json", help="For a program to read.")]


def list_(session: Session, name: NameOrStorage, as_json: Json = False) -> None:
    """List all checkpoints, oldest first.

    A directory is the storage of a pipeline that `penstock run` ran. Anything else is the name of a pipeline
    of the service, which must run.
    """
    storage = storage_of(name)
    session.out.as_json |= as_json
    if storage is None:
        show_checkpoints(session, name)
        return
    from penstock.controller import stored

    with errors_shown(storage, ""):
        found = stored.list_checkpoints(storage)
    if session.out.as_json:
        session.out.document([item.plain() for item in found])
        return
    table = Table("checkpoint", "name", "age", "transaction", "rows", "size", "of it own", "verified", "")
    for item in found:
        entry = item.entry
        table.add_row(
            entry.id,
            entry.name or "",
            age(entry.at),
            str(entry.transaction),
            f"{entry.rows:,}",
            size(entry.bytes),
            "?" if item.own_bytes is None else size(item.own_bytes),
            "never" if entry.verified is None else f"{age(entry.verified)} ago",
            "damaged" if entry.suspect else "put aside" if entry.aside else "",
        )
    get_console().print(table)


service_command(checkpoint, "list", "penstock checkpoint list shop")(list_)
add_commands(checkpoint)


@checkpoint.command(epilog="Example: penstock checkpoint create ./shop-run --name before-migration")
def create(
    storage: StoragePath,
    name: Annotated[
        str | None, typer.Option(help="A name, under which it is kept until it is deleted.")
    ] = None,
) -> None:
    """Take a checkpoint of a pipeline that is stopped. A running one takes it with `take`."""
    from penstock.controller import stored

    with errors_shown(storage, ""):
        entry = stored.name_checkpoint(storage, name)
    typer.echo(f"Checkpoint {entry} was taken.")


@checkpoint.command(epilog="Example: penstock checkpoint verify ./shop-run before-migration")
def verify(
    storage: StoragePath,
    reference: Annotated[
        str | None, typer.Argument(metavar="[UUID|NAME]", help="One checkpoint; all of them if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every byte of the checkpoints and compare it with what was written; exit code 1 if any differs."""
    from penstock.controller import stored

    with errors_shown(storage, ""):
        chosen = [
            item.entry
            for item in stored.list_checkpoints(storage)
            if reference is None or item.entry.name == reference or item.entry.id.startswith(reference)
        ]
        with _progress(sum(entry.bytes for entry in chosen)) as report:
            found = list(stored.verify_checkpoints(storage, reference, report))
    if as_json:
        typer.echo(json.dumps([{"id": e.id, "faults": list(faults)} for e, faults in found], indent=1))
    else:
        for entry, faults in found:
            _say(f"Checkpoint {entry}: {'damaged' if faults else 'every byte is as it was written'}")
            for fault in faults:
                _say(f"  {fault}")
    if any(faults for _, faults in found):
        raise typer.Exit(ExitCode.FAILED)


@checkpoint.command(epilog="Example: penstock checkpoint restore ./shop-run --from before-migration")
def restore(storage: StoragePath, reference: Reference) -> None:
    """Go back to a checkpoint: the next start goes on from it. Nothing is deleted."""
    from penstock.controller import stored

    with errors_shown(storage, ""), _progress(None) as report:
        entry, journal = stored.go_back(storage, reference, report)
    typer.echo(
        f"The next start goes on after transaction {entry.transaction}. What came later is set aside: the"
        f" journal is {journal}, and the other checkpoints are kept until they are deleted. Outputs that have"
        " later transactions are refused at the start until they are emptied."
    )


@checkpoint.command(epilog="Example: penstock checkpoint delete ./shop-run before-migration")
def delete(
    storage: StoragePath,
    reference: Annotated[str, typer.Argument(metavar="UUID|NAME", help="The checkpoint to delete.")],
) -> None:
    """Delete a checkpoint, and what only it has."""
    from penstock.controller import stored

    with errors_shown(storage, ""):
        entry = stored.delete_checkpoint(storage, reference)
    typer.echo(f"Checkpoint {entry} is deleted.")


@checkpoint.command(epilog="Example: penstock checkpoint repair ./shop-run")
def repair(
    storage: StoragePath,
    without_damaged: Annotated[
        bool, typer.Option(help="Leave out checkpoints whose manifest is damaged; they are renamed.")
    ] = False,
) -> None:
    """Make a catalog that is missing or damaged again, from the manifests of the checkpoints."""
    from penstock.controller import stored

    with errors_shown(storage, ""):
        catalog = stored.repair(storage, without_damaged=without_damaged)
    typer.echo(f"The catalog was made again, with {len(catalog.checkpoints)} checkpoints:")
    for entry in catalog.checkpoints:
        typer.echo(f"  {entry}{' (put aside)' if entry.aside else ''}")


@contextmanager
def _progress(total: int | None) -> Iterator[Report]:
    """A bar of the bytes that were read, where somebody sees it."""
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)


def _say(text: str) -> None:
    get_console().print(Text(text), soft_wrap=True)
