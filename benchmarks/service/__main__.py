"""`python -m benchmarks.service`: starts, one row, many clients and bulk loads through the service."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.children import RunError, child
from benchmarks.report import console, progress_shown, targets_table
from benchmarks.results import MIB
from benchmarks.service import on_streaming
from benchmarks.service.run import CLIENTS, Measured, measure
from benchmarks.targets import Target


@dataclass(frozen=True)
class Peer:
    """What Structured Streaming does with the same rows."""

    one_row: list[float]
    bulk: float


def main(
    starts: Annotated[int, typer.Option(min=1, help="Starts of each kind.")] = 3,
    rows: Annotated[int, typer.Option(min=5, help="Rows that are pushed one by one.")] = 100,
    bulk: Annotated[int, typer.Option(min=10_000, help="Rows of the bulk load.")] = 1_000_000,
    peer: Annotated[bool, typer.Option(help="Also Spark Structured Streaming.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """Start pipelines of a service, and push rows into one."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory,
            progress_shown() as progress,
        ):
            task = progress.add_task("Penstock: starts, one row, clients, bulk", total=2 * starts + 4)
            measured = measure(Path(directory), starts, rows, bulk, lambda: progress.advance(task))
            compared = None
            if peer:
                progress.add_task("Spark Structured Streaming: one row, bulk", total=None)
                compared = streaming(Path(directory) / "streaming", rows, bulk)
    except RunError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(table(measured, compared))
    console.print(targets_table(targets(measured)))
    if json_file is not None:
        found = {"penstock": asdict(measured), "streaming": compared and asdict(compared)}
        json_file.write_text(json.dumps(found, indent=2))
    if not measured.correct:
        raise typer.Exit(1)


def streaming(directory: Path, rows: int, bulk: int) -> Peer:
    directory.mkdir()
    with child(directory, on_streaming.__name__, str(rows), str(bulk), str(directory)) as said:
        found = next(said).content
        return Peer(found["one_row"], found["bulk"])


def table(measured: Measured, peer: Peer | None) -> Table:
    found = Table(
        title=f"The service, answer {'right' if measured.correct else '[bold red]WRONG[/]'}",
        title_justify="left",
    )
    found.add_column("what", no_wrap=True)
    found.add_column("Penstock", justify="right")
    found.add_column("Structured Streaming", justify="right")
    one_row = "" if peer is None else f"{statistics.median(peer.one_row) * 1000:,.0f} ms"
    bulk = "" if peer is None else f"{peer.bulk:,.0f} rows/s"
    for what, ours, theirs in (
        ("start with a warm spare", f"{statistics.median(measured.warm):.1f} s", ""),
        ("cold start", f"{statistics.median(measured.cold):.1f} s", ""),
        (
            "one row, pushed until it is seen",
            f"{statistics.median(measured.one_row) * 1000:,.0f} ms",
            one_row,
        ),
        ("one client, row by row", f"{measured.one_client:,.1f} rows/s", ""),
        (f"{CLIENTS} clients, row by row", f"{measured.many_clients:,.1f} rows/s", ""),
        ("bulk load of JSON lines", f"{measured.bulk:,.0f} rows/s", bulk),
        ("memory of the pipeline", f"{measured.memory / MIB:,.0f} MiB", ""),
        ("memory of a spare", f"{measured.spare_memory / MIB:,.0f} MiB", ""),
    ):
        found.add_row(what, ours, theirs)
    return found


def targets(measured: Measured) -> list[Target]:
    return [
        Target("start with a warm spare", statistics.median(measured.warm), 3, at_least=False, unit=" s"),
        Target("cold start", statistics.median(measured.cold), 8, at_least=False, unit=" s"),
        Target(
            "one row, pushed until it is seen",
            statistics.median(measured.one_row) * 1000,
            400,
            at_least=False,
            unit=" ms",
        ),
        Target(f"{CLIENTS} clients / one client, row by row", measured.batching, 20, at_least=True, unit="x"),
        Target("bulk load of JSON lines", measured.bulk, 50_000, at_least=True, unit=" rows/s"),
    ]


if __name__ == "__main__":
    typer.run(main)
