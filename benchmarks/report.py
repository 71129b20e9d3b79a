"""The tables that are printed."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from benchmarks.results import MIB, Result
from benchmarks.systems import SYSTEMS
from benchmarks.targets import Target

MARKS = {True: "[green]reached[/]", False: "[red]missed[/]", None: "[dim]not measured[/]"}

console = Console() if sys.stdout.isatty() else Console(width=140)


def progress_shown() -> Progress:
    """Lines that show how far each task is, and go when it is done."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def results_table(results: list[Result], orders: int) -> Table:
    """One line per system, also for those that failed or are not available."""
    table = Table(title=f"{orders:,} orders", title_justify="left")
    table.add_column("system", no_wrap=True)
    headings = (
        "first load s",
        "transaction ms",
        "p95 ms",
        "bulk changes/s",
        "durable",
        "peak MiB",
        "of it Python",
    )
    for heading in (*headings, "answer"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(SYSTEMS[result.system].title, *_cells(result))
    return table


def problems(results: list[Result]) -> list[str]:
    """A line for each system that gave no timings or a wrong answer, with the reason."""
    return [f"{SYSTEMS[result.system].title}: {result.problem}" for result in results if result.problem]


def targets_table(targets: list[Target]) -> Table:
    table = Table(title="Targets", title_justify="left")
    table.add_column("figure")
    for heading in ("measured", "target", ""):
        table.add_column(heading, justify="right")
    for target in targets:
        measured = "" if target.value is None else f"{_number(target.value)}{target.unit}"
        bound = f"{'>=' if target.at_least else '<='} {_number(target.limit)}{target.unit}"
        table.add_row(target.name, measured, bound, MARKS[target.reached])
    return table


def _cells(result: Result) -> list[str]:
    timings = result.timings
    if timings is None:
        return [""] * 7 + ["[yellow]none[/]"]
    return [
        f"{timings.load:,.1f}",
        f"{timings.median * 1000:,.1f}",
        f"{timings.p95 * 1000:,.1f}",
        f"{result.bulk_rate:,.0f}",
        "yes" if result.durable else "no",
        f"{result.memory.resident / MIB:,.0f}",
        f"{result.memory.python / MIB:,.0f}",
        "right" if timings.correct else "[bold red]WRONG[/]",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
