"""`python -m benchmarks`: measures Penstock and its peers, checks every answer, and prints the targets."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from benchmarks.generate import generate
from benchmarks.harness import run_system
from benchmarks.report import console, problems, progress_shown, results_table, targets_table
from benchmarks.results import Result
from benchmarks.systems import ON_SPARK, SYSTEMS
from benchmarks.targets import GROWTH, judge
from benchmarks.workload import Shape, Workload


def main(
    every: Annotated[bool, typer.Option("--all", help="Also DuckDB, Pathway and Flink.")] = False,
    orders: Annotated[int, typer.Option(min=100, help="Orders of the first load.")] = 1_000_000,
    system: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(SYSTEMS)}.")] = None,
    transactions: Annotated[
        int, typer.Option(min=5, help="Small transactions; the first fifth, at most 10, warm up.")
    ] = 50,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """Measure Penstock and its peers on the orders workload."""
    names = system or (list(SYSTEMS) if every else list(ON_SPARK))
    for unknown in (name for name in names if name not in SYSTEMS):
        raise typer.BadParameter(f"no system is called {unknown}; there are {', '.join(SYSTEMS)}")
    results = measure(names, orders, transactions)
    grown = [name for name in names if SYSTEMS[name].grown]
    if grown:
        results += measure(grown, GROWTH * orders, transactions)
    console.print(targets_table(judge(results, orders)))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(result) for result in results], indent=2))
    if any(result.failed for result in results):
        raise typer.Exit(1)


def measure(names: list[str], orders: int, transactions: int) -> list[Result]:
    """Make the data of one size, run the systems on it, and show them."""
    shape = Shape.of(orders, transactions)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        progress_shown() as progress,
    ):
        making = progress.add_task(f"{orders:,} orders: making the data", total=shape.steps)
        workload = generate(Path(directory) / "data", shape, lambda: progress.advance(making))
        progress.remove_task(making)
        results = [show_progress(progress, name, workload) for name in names]
    console.print(results_table(results, orders))
    for line in problems(results):
        console.print(line, style="yellow", markup=False)
    return results


def show_progress(progress: Progress, name: str, workload: Workload) -> Result:
    """Run one system with a line of its own."""
    title = f"{workload.shape.orders:,} orders: {SYSTEMS[name].title}"
    task = progress.add_task(title, total=workload.shape.steps)

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "transaction":
            progress.update(
                task, completed=event["number"] + 1, description=f"{title}: {event['seconds'] * 1000:,.0f} ms"
            )
        else:
            progress.update(task, description=f"{title}: {event['name']}")

    result = run_system(name, workload, report)
    progress.remove_task(task)
    return result


if __name__ == "__main__":
    typer.run(main)
