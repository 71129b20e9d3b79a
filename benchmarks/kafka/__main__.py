"""`python -m benchmarks.kafka`: messages of Kafka into a view and out of it, all systems on one broker."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.children import RunError
from benchmarks.kafka.run import CHUNK, SYSTEMS, Measured, NotAvailableError, broker, measure, prepare, steps
from benchmarks.report import console, progress_shown, targets_table
from benchmarks.targets import Target


def main(
    messages: Annotated[int, typer.Option(min=1_000, help="Messages of the topic that is read.")] = 1_000_000,
    latency_messages: Annotated[int, typer.Option(min=2, help="Messages that are sent one by one.")] = 60,
    peer: Annotated[bool, typer.Option(help="Also Spark Structured Streaming.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """Read a topic into a view, then send messages one by one through it into another topic."""
    names = [name for name in SYSTEMS if peer or name != "streaming"]
    found: dict[str, Measured] = {}
    problems: dict[str, RunError] = {}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory,
            progress_shown() as progress,
            broker(Path(directory) / "kafka") as kafka,
        ):
            task = progress.add_task("making the messages", total=messages)
            prepare(kafka, messages, partial(progress.advance, task, CHUNK))
            for name in names:
                task = progress.add_task(SYSTEMS[name].title, total=steps(latency_messages))
                place, report = Path(directory) / name, partial(progress.advance, task)
                try:
                    found[name] = measure(kafka, name, place, messages, latency_messages, report)
                except RunError as error:  # the others may still do it
                    problems[name] = error
    except RunError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(table(names, found, problems, messages))
    for name, error in problems.items():
        console.print(f"{SYSTEMS[name].title}: {error}", style="yellow", markup=False)
    console.print(targets_table(targets(found)))
    if json_file is not None:
        content = {name: asdict(measured) for name, measured in found.items()}
        json_file.write_text(
            json.dumps({"messages": messages, **content, "problems": _texts(problems)}, indent=2)
        )
    failed = any(not isinstance(error, NotAvailableError) for error in problems.values())
    if failed or not all(measured.correct for measured in found.values()):
        raise typer.Exit(1)


def table(
    names: list[str], found: dict[str, Measured], problems: dict[str, RunError], messages: int
) -> Table:
    made = Table(title=f"{messages:,} messages", title_justify="left")
    made.add_column("system", no_wrap=True)
    for heading in ("ingest s", "messages/s", "one message ms", "p95 ms", "durable", "answer"):
        made.add_column(heading, justify="right")
    for name in names:
        entry, measured = SYSTEMS[name], found.get(name)
        if measured is None:
            what = "not available" if isinstance(problems[name], NotAvailableError) else "failed"
            made.add_row(entry.title, *[""] * 5, f"[yellow]{what}[/]")
            continue
        made.add_row(
            entry.title,
            f"{measured.ingest:,.2f}",
            f"{messages / measured.ingest:,.0f}",
            f"{measured.median * 1000:,.0f}",
            f"{measured.p95 * 1000:,.0f}",
            "yes" if entry.durable else "no",
            "right" if measured.correct else "[bold red]WRONG[/]",
        )
    return made


def targets(found: dict[str, Measured]) -> list[Target]:
    penstock, streaming = found.get("penstock"), found.get("streaming")
    both = penstock is not None and streaming is not None
    return [
        Target(
            "ingest: Structured Streaming's time / Penstock's",
            streaming.ingest / penstock.ingest if both else None,
            1,
            at_least=True,
            unit="x",
        ),
        Target(
            "latency of one message: Penstock / Structured Streaming",
            penstock.median / streaming.median if both else None,
            0.5,
            at_least=False,
            unit="x",
        ),
    ]


def _texts(problems: dict[str, RunError]) -> dict[str, str]:
    return {name: str(error) for name, error in problems.items()}


if __name__ == "__main__":
    typer.run(main)
