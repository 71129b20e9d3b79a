"""`python -m benchmarks.recovery`: how long it takes to come back after a kill, answers checked."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.children import RunError
from benchmarks.recovery.orders import CHANGES, make
from benchmarks.recovery.run import Report, Restart, penstock, streaming
from benchmarks.report import console, progress_shown, targets_table
from benchmarks.targets import Target

TARGET = 10


def main(
    orders: Annotated[int, typer.Option(min=1_000, help="Orders of the first load.")] = 100_000,
    transactions: Annotated[
        int, typer.Option(min=3, help=f"Transactions of {CHANGES} changes after the checkpoint.")
    ] = 1_000,
    peer: Annotated[bool, typer.Option(help="Also Spark Structured Streaming.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """Kill a pipeline that has a long journal, start it again, and say where the time goes."""
    try:
        restarts = measure(orders, transactions, peer)
    except RunError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(restarts_table(restarts, orders, transactions))
    together, one_by_one = restarts[:2]
    name = "replay per transaction: one by one / together"
    target = Target(name, one_by_one.each / together.each, TARGET, at_least=True, unit="x")
    console.print(targets_table([target]))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(restart) for restart in restarts], indent=2))
    if not all(restart.correct for restart in restarts):
        raise typer.Exit(1)


def measure(orders: int, transactions: int, peer: bool) -> list[Restart]:
    """Make the data, and bring each system back from a kill."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory,
        progress_shown() as progress,
    ):

        def reporter(title: str) -> Report:
            task = progress.add_task(title, total=transactions)
            return lambda done: progress.update(task, completed=done)

        making = progress.add_task("making the data", total=transactions)
        workload = make(Path(directory) / "data", orders, transactions, lambda: progress.advance(making))
        report = reporter("Penstock: writing, then two restarts")
        restarts = list(penstock(workload, Path(directory) / "penstock", report))
        if peer:
            report = reporter("Spark Structured Streaming: writing, then a restart")
            restarts.append(streaming(workload, Path(directory) / "streaming", report))
    return restarts


def restarts_table(restarts: list[Restart], orders: int, transactions: int) -> Table:
    """One line for each way back."""
    title = f"{orders:,} orders, killed after {transactions:,} transactions of {CHANGES} changes"
    table = Table(title=title, title_justify="left")
    table.add_column("system", no_wrap=True)
    headings = ("running s", "Python, Spark s", "load s", "replay s", "replayed", "ms each", "answer")
    for heading in headings:
        table.add_column(heading, justify="right")
    for restart in restarts:
        table.add_row(
            restart.title,
            f"{restart.running:,.1f}",
            f"{restart.start:,.1f}",
            "" if restart.load is None else f"{restart.load:,.1f}",
            f"{restart.replay:,.1f}",
            f"{restart.transactions:,}",
            "" if restart.load is None else f"{restart.each * 1000:,.1f}",
            "right" if restart.correct else "[bold red]WRONG[/]",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
