"""`python -m benchmarks.checkpoint`: what checkpoints cost, and what they are good for, answers checked."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.checkpoint.on_streaming import KEPT
from benchmarks.checkpoint.orders import BLOCK, CHANGES, WARM_UP, Parts, make
from benchmarks.checkpoint.run import (
    Report,
    Restore,
    Rounds,
    Speed,
    Written,
    penstock_restore,
    penstock_rounds,
    penstock_speed,
    streaming_restore,
    streaming_written,
)
from benchmarks.children import RunError
from benchmarks.report import console, progress_shown, targets_table
from benchmarks.results import MIB
from benchmarks.targets import Target

SHARE = 2
"""Of the state's bytes, in per cent: what a checkpoint may write."""
SLOWDOWN = 1.5

LINES: dict[str, Callable[[Written], int]] = {
    "batches of the transaction, written when it ran": lambda written: written.transaction,
    "batches merged from older ones meanwhile": lambda written: written.merged,
    "written by the checkpoint: state files, manifest, catalog": lambda written: written.commit,
    "together": lambda written: written.all,
}


@dataclass(frozen=True)
class Measured:
    """All of one run."""

    rounds: Rounds
    speed: Speed
    restores: list[Restore]

    @property
    def correct(self) -> bool:
        return self.rounds.correct and self.speed.correct and all(r.correct for r in self.restores)

    @property
    def share(self) -> float:
        """Median, in per cent."""
        return statistics.median(100 * written.all / written.state for written in self.rounds.written)

    @property
    def targets(self) -> list[Target]:
        wrote = f"bytes of a checkpoint after {CHANGES:,} changes / bytes of the state"
        took = "transaction: during checkpoints / without"
        return [
            Target(wrote, self.share, SHARE, at_least=False, unit="%"),
            Target(took, self.speed.ratio, SLOWDOWN, at_least=False, unit="x"),
        ]


def main(
    orders: Annotated[int, typer.Option(min=10_000, help="Orders of the first load.")] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=2, help="Checkpoints after a transaction each.")] = 9,
    blocks: Annotated[
        int, typer.Option(min=1, help=f"Blocks of {BLOCK} transactions with checkpoints; as many without.")
    ] = 5,
    restarts: Annotated[int, typer.Option(min=1, help="Cold starts of each kind.")] = 3,
    peer: Annotated[bool, typer.Option(help="Also Spark Structured Streaming.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """Take checkpoints of a large state, kill the pipeline, and start it again."""
    try:
        measured = measure(orders, Parts(rounds, blocks), restarts, peer)
    except RunError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(written_table(measured.rounds, orders))
    console.print(speed_table(measured.speed))
    console.print(restores_table(measured.restores, orders))
    console.print(targets_table(measured.targets))
    if json_file is not None:
        json_file.write_text(json.dumps({"orders": orders, **asdict(measured)}, indent=2))
    if not measured.correct:
        raise typer.Exit(1)


def measure(orders: int, parts: Parts, restarts: int, peer: bool) -> Measured:
    """Make the data, and put it through everything."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory,
        progress_shown() as progress,
    ):

        def step(title: str, steps: int) -> Report:
            task = progress.add_task(title, total=steps)
            return lambda: progress.advance(task)

        data, state = Path(directory) / "data", Path(directory) / "penstock"
        workload = make(data, orders, parts, step("making the data", parts.transactions))
        report = step("Penstock: loading, then checkpoints", parts.rounds + 2)
        rounds = penstock_rounds(workload, state, parts, report)
        restores: list[Restore] = []
        report = step("Penstock: cold starts", 2 * restarts)
        for verify in ("lazy", "eager"):
            for _ in range(restarts):
                restores.append(penstock_restore(workload, state, parts, verify))
                report()
        report = step("Penstock: transactions beside checkpoints", WARM_UP + parts.timed + 1)
        speed = penstock_speed(workload, state, parts, report)
        for kept in KEPT if peer else ():
            report = step(f"Spark Structured Streaming, {kept}: loading, then cold starts", restarts + 1)
            place = Path(directory) / f"streaming-{kept}"
            streaming_written(workload, place, parts, kept)
            report()
            for _ in range(restarts):
                restores.append(streaming_restore(workload, place, parts, kept))
                report()
    return Measured(rounds, speed, restores)


def written_table(rounds: Rounds, orders: int) -> Table:
    """Where the bytes of a checkpoint come from."""
    state = rounds.written[-1].state
    title = (
        f"{orders:,} orders, state of {state / MIB:,.1f} MiB: bytes per checkpoint after {CHANGES:,} changes,"
        f" {len(rounds.written)} rounds, answer {mark(rounds.correct)}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("files", no_wrap=True)
    for heading in ("median KiB", "largest KiB", "median % of state", "largest % of state"):
        table.add_column(heading, justify="right")
    for name, choose in LINES.items():
        sizes = [choose(written) / 1024 for written in rounds.written]
        shares = [100 * choose(written) / written.state for written in rounds.written]
        table.add_row(
            name,
            f"{statistics.median(sizes):,.1f}",
            f"{max(sizes):,.1f}",
            f"{statistics.median(shares):.3f}",
            f"{max(shares):.3f}",
        )
    return table


def speed_table(speed: Speed) -> Table:
    """Transactions with and without company."""
    title = f"Transactions of {CHANGES:,} changes, answer {mark(speed.correct)}"
    table = Table(title=title, title_justify="left")
    table.add_column("what", no_wrap=True)
    for heading in ("number", "median ms", "largest ms"):
        table.add_column(heading, justify="right")
    for name, seconds in {
        "transactions without checkpoints": speed.usual,
        "transactions during checkpoints": speed.during,
        "these checkpoints, with waiting for a transaction to end": speed.checkpoints,
    }.items():
        middle, largest = statistics.median(seconds) * 1000, max(seconds) * 1000
        table.add_row(name, f"{len(seconds):,}", f"{middle:,.1f}", f"{largest:,.1f}")
    return table


def restores_table(restores: list[Restore], orders: int) -> Table:
    """One line for each kind of start, with the medians."""
    title = f"{orders:,} orders: from the start of a process, with cold files, to the first answer"
    table = Table(title=title, title_justify="left")
    table.add_column("system", no_wrap=True)
    headings = ("answered s", "Python s", "Spark s", "check s", "load s", "answer s", "then recomputed s")
    for heading in (*headings, "answer"):
        table.add_column(heading, justify="right")
    for system in dict.fromkeys(restore.system for restore in restores):
        same = [restore for restore in restores if restore.system == system]
        chosen = (
            [getattr(restore, name) for restore in same]
            for name in ("answered", "python", "spark", "check", "load", "query", "recomputed")
        )
        cells = ["" if None in column else f"{statistics.median(column):,.1f}" for column in chosen]
        table.add_row(system, *cells, mark(all(restore.correct for restore in same)))
    return table


def mark(correct: bool) -> str:
    return "right" if correct else "[bold red]WRONG[/]"


if __name__ == "__main__":
    typer.run(main)
