"""`python -m benchmarks.hosts`: the orders workload on one host and on two, with as many workers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.__main__ import measure
from benchmarks.report import console
from benchmarks.results import Result, Timings
from benchmarks.systems import SYSTEMS

ALONE, SPREAD = "penstock", "penstock-hosts"


def main(
    orders: Annotated[int, typer.Option(min=100, help="Orders of the first load.")] = 1_000_000,
    transactions: Annotated[
        int, typer.Option(min=5, help="Small transactions; the first fifth, at most 10, warm up.")
    ] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """What it costs to be spread over hosts, and how much of what tasks read was where they ran."""
    results = measure([ALONE, SPREAD], orders, transactions)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(result) for result in results], indent=2))
    if any(result.failed for result in results):
        raise typer.Exit(1)
    alone, spread = results
    console.print(overhead_table(alone, spread))
    console.print(reads_table(timings_of(spread).figures))


def overhead_table(alone: Result, spread: Result) -> Table:
    """Each figure of both, and how many times the one is the other."""
    table = Table(title="What it costs to be spread", title_justify="left")
    table.add_column("seconds", no_wrap=True)
    for heading in (SYSTEMS[ALONE].title, SYSTEMS[SPREAD].title, "ratio"):
        table.add_column(heading, justify="right")
    for name, one, other in (
        ("start", timings_of(alone).start, timings_of(spread).start),
        ("first load", timings_of(alone).load, timings_of(spread).load),
        ("transaction of 1,000 changes", timings_of(alone).median, timings_of(spread).median),
        ("100,000 changes in bulk", 100_000 / alone.bulk_rate, 100_000 / spread.bulk_rate),
    ):
        table.add_row(name, f"{one:,.2f}", f"{other:,.2f}", f"{other / one:.2f}x")
    return table


def reads_table(reads: dict[str, float]) -> Table:
    """Where tasks found the batches that they read."""
    whole = sum(reads.values())
    table = Table(title="Batches that tasks read", title_justify="left")
    table.add_column("where they were", no_wrap=True)
    for heading in ("times", "share"):
        table.add_column(heading, justify="right")
    for how, where in {
        "written": "written on the same host",
        "held": "another host's, fetched before",
        "fetched": "another host's, fetched for it",
    }.items():
        times = reads.get(how, 0)
        table.add_row(where, f"{times:,.0f}", f"{times / whole:.1%}" if whole else "")
    return table


def timings_of(result: Result) -> Timings:
    assert result.timings is not None
    return result.timings


if __name__ == "__main__":
    typer.run(main)
