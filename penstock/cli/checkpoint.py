"""`penstock checkpoint`: look at the checkpoints of a storage directory, name them, go back to one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.checkpoint.check import Progress as Report
from penstock.cli.report import FAILED, errors_shown
from penstock.controller import stored

checkpoint = typer.Typer(
    help="Look at a pipeline's checkpoints, name them, check them, go back to one.", no_args_is_help=True
)

StoragePath = Annotated[
    Path,
    typer.Argument(metavar="STORAGE", help="The pipeline's storage directory.", exists=True, file_okay=False),
]
Reference = Annotated[str, typer.Option("--from", metavar="UUID|NAME", help="The checkpoint to go back to.")]
Json = Annotated[bool, typer.Option("--json", help="For a program to read.")]


@checkpoint.command("list")
def list_(storage: StoragePath, as_json: Json = False) -> None:
    """List all checkpoints, oldest first."""
    with errors_shown(storage, ""):
        found = stored.list_checkpoints(storage)
    if as_json:
        typer.echo(json.dumps([item.plain() for item in found], indent=1))
        return
    table = Table("checkpoint", "name", "age", "transaction", "rows", "size", "of it own", "verified", "")
    for item in found:
        entry = item.entry
        table.add_row(
            entry.id,
            entry.name or "",
            _age(entry.at),
            str(entry.transaction),
            f"{entry.rows:,}",
            _bytes(entry.bytes),
            "?" if item.own_bytes is None else _bytes(item.own_bytes),
            "never" if entry.verified is None else f"{_age(entry.verified)} ago",
            "damaged" if entry.suspect else "put aside" if entry.aside else "",
        )
    get_console().print(table)


@checkpoint.command()
def create(
    storage: StoragePath,
    name: Annotated[
        str | None, typer.Option(help="A name, under which it is kept until it is deleted.")
    ] = None,
) -> None:
    """Take a checkpoint of a pipeline that is stopped. A running one takes it with Pipeline.checkpoint()."""
    with errors_shown(storage, ""):
        entry = stored.name_checkpoint(storage, name)
    typer.echo(f"Checkpoint {entry} was taken.")


@checkpoint.command()
def verify(
    storage: StoragePath,
    reference: Annotated[
        str | None, typer.Argument(metavar="[UUID|NAME]", help="One checkpoint; all of them if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every byte of the checkpoints and compare it with what was written; exit code 1 if any differs."""
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
        raise typer.Exit(FAILED)


@checkpoint.command()
def restore(storage: StoragePath, reference: Reference) -> None:
    """Go back to a checkpoint: the next start goes on from it. Nothing is deleted."""
    with errors_shown(storage, ""), _progress(None) as report:
        entry, journal = stored.go_back(storage, reference, report)
    typer.echo(
        f"The next start goes on after transaction {entry.transaction}. What came later is set aside: the"
        f" journal is {journal}, and the other checkpoints are kept until they are deleted. Outputs that have"
        " later transactions are refused at the start until they are emptied."
    )


@checkpoint.command()
def delete(
    storage: StoragePath,
    reference: Annotated[str, typer.Argument(metavar="UUID|NAME", help="The checkpoint to delete.")],
) -> None:
    """Delete a checkpoint, and what only it has."""
    with errors_shown(storage, ""):
        entry = stored.delete_checkpoint(storage, reference)
    typer.echo(f"Checkpoint {entry} is deleted.")


@checkpoint.command()
def repair(
    storage: StoragePath,
    without_damaged: Annotated[
        bool, typer.Option(help="Leave out checkpoints whose manifest is damaged; they are renamed.")
    ] = False,
) -> None:
    """Make a catalog that is missing or damaged again, from the manifests of the checkpoints."""
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


def _age(at: datetime) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _bytes(count: int) -> str:
    """A size as people read it.

    >>> [_bytes(count) for count in (12, 3_456, 7_890_123_456)]
    ['12 B', '3.4 KiB', '7.3 GiB']
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
