"""`python -m benchmarks.sync`: checkpoints pushed to an object store and fetched from it, beside rclone."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.checkpoint.orders import CHANGES, Parts, make
from benchmarks.children import Event, RunError, asked
from benchmarks.report import console, progress_shown, targets_table
from benchmarks.results import MIB
from benchmarks.sync import on_penstock
from benchmarks.sync.store import BUCKET, KEY, SECRET, rclone_copy, serving
from benchmarks.targets import Target
from penstock.checkpoint.check import check
from penstock.checkpoint.store import CheckpointStore
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.pull import Pull
from penstock.sync.remote import find

SHARE = 2
"""Of the state's bytes, in per cent: what a push after few changes may send."""


@dataclass(frozen=True)
class Copy:
    """So many bytes in so many seconds."""

    bytes: int
    seconds: float

    @property
    def speed(self) -> float:
        """MiB per second."""
        return self.bytes / MIB / self.seconds


@dataclass(frozen=True)
class Measured:
    """All of one run."""

    push: Copy
    pull: Copy
    rclone_up: Copy
    rclone_down: Copy
    rounds: list[Copy]
    shares: list[float]
    correct: bool

    @property
    def targets(self) -> list[Target]:
        share = statistics.median(self.shares)
        name = f"bytes of a push after {CHANGES:,} changes / bytes of the state"
        return [Target(name, share, SHARE, at_least=False, unit="%")]


def main(
    orders: Annotated[int, typer.Option(min=10_000, help="Orders of the first load.")] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Pushes after a transaction each.")] = 9,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all measurements here.")
    ] = None,
) -> None:
    """Push a large state, push it again after small changes, fetch it; and the same files with rclone."""
    try:
        measured = measure(orders, rounds)
    except RunError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(speeds_table(measured, orders))
    console.print(targets_table(measured.targets))
    if json_file is not None:
        json_file.write_text(json.dumps({"orders": orders, **asdict(measured)}, indent=2))
    if not measured.correct:
        raise typer.Exit(1)


def measure(orders: int, rounds: int) -> Measured:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as name,
        progress_shown() as progress,
        serving(Path(name) / "store") as url,
    ):
        directory, parts = Path(name), Parts(rounds, 0)
        task = progress.add_task("making the data", total=parts.transactions)
        workload = make(directory / "data", orders, parts, lambda: progress.advance(task))
        state = directory / "penstock"
        state.mkdir()
        sync = {"bucket": f"{BUCKET}/orders", "endpoint": url, "access_key": KEY, "secret_key": SECRET}
        pushes: list[tuple[Copy, int]] = []
        task = progress.add_task("Penstock: loading, then pushes", total=rounds + 2)

        def hear(event: Event) -> None:
            progress.advance(task)
            if event.name in ("loaded", "round"):
                found = event.content
                pushes.append((Copy(found["bytes"], found["seconds"]), found["state"]))

        found = asked(
            on_penstock.__name__, "write", workload, state, str(rounds), json.dumps(sync), report=hear
        )
        task = progress.add_task("a fetch, and the same with rclone", total=3)
        pull, whole = fetched(SyncConfig.of(sync), directory / "fetched")
        progress.advance(task)
        files = directory / "fetched"  # one checkpoint, as rclone is to copy it
        up = rclone_copy(url, str(files), f"store:{BUCKET}/peer")
        progress.advance(task)
        down = rclone_copy(url, f"store:{BUCKET}/peer", str(directory / "peer"))
        progress.advance(task)
        size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
        shutil.rmtree(directory / "peer")
    first, *rest = pushes
    return Measured(
        push=first[0],
        pull=pull,
        rclone_up=Copy(size, up),
        rclone_down=Copy(size, down),
        rounds=[copy for copy, _ in rest],
        shares=[100 * copy.bytes / size for copy, size in rest],
        correct=whole and bool(found["answer"].content["correct"]),
    )


def fetched(config: SyncConfig, directory: Path) -> tuple[Copy, bool]:
    """The newest checkpoint, fetched into a new directory, and whether every byte of it is right."""
    directory.mkdir()
    store = CheckpointStore(directory)
    began = time.monotonic()
    found = find(Location(config, config.bucket), "latest", config)
    if found is None:
        raise RunError("nothing was pushed")
    copied = Pull(store, config).run(found, "orders", found.catalog.id)
    seconds = time.monotonic() - began
    check(directory, store.newest, deep=True)
    return Copy(copied.bytes_done, seconds), copied.bytes_done == copied.bytes


def speeds_table(measured: Measured, orders: int) -> Table:
    answer = "right" if measured.correct else "[bold red]WRONG[/]"
    table = Table(title=f"{orders:,} orders, answer and bytes {answer}", title_justify="left")
    table.add_column("what", no_wrap=True)
    for heading in ("MiB", "seconds", "MiB/s"):
        table.add_column(heading, justify="right")
    small = sorted(measured.rounds, key=lambda copy: copy.bytes)[len(measured.rounds) // 2]
    for name, copy in {
        "Penstock: push of everything": measured.push,
        "rclone copy, to the store": measured.rclone_up,
        "Penstock: fetch of everything": measured.pull,
        "rclone copy, from the store": measured.rclone_down,
        f"Penstock: push after {CHANGES:,} changes, median": small,
    }.items():
        table.add_row(name, f"{copy.bytes / MIB:,.1f}", f"{copy.seconds:,.2f}", f"{copy.speed:,.1f}")
    return table


if __name__ == "__main__":
    typer.run(main)
