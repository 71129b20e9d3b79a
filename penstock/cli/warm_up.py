"""`penstock warm-up`: run a small pipeline once, and record what classes Spark loads for it.

`python -m penstock.cli.warm_up FILE` is the process whose JVM writes the archive when it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich import get_console

import penstock
from penstock.engine.archive import SWITCHED_OFF, archive_path, recording
from penstock.errors import StateError

PATIENCE = 600

PROGRAM = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, status STRING, amount DECIMAL(12, 2));
CREATE TABLE customers (id BIGINT PRIMARY KEY, region STRING);
CREATE VIEW by_region AS
SELECT region, status, count(*) AS orders, sum(amount) AS total
FROM orders JOIN customers ON orders.customer = customers.id GROUP BY region, status;
CREATE VIEW idle AS
SELECT customers.id FROM customers LEFT JOIN orders ON orders.customer = customers.id WHERE orders.id IS NULL;
CREATE VIEW newest AS
SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY customer ORDER BY id DESC) AS place FROM orders)
WHERE place = 1;
"""


def warm_up() -> str:
    """Make the archive unless it is there; says what was done. Raises StateError if it cannot be made."""
    path = archive_path()
    if path is None:
        why = f"{SWITCHED_OFF} is set" if os.environ.get(SWITCHED_OFF) else "no Java was found"
        return f"Nothing was done: {why}."
    if path.is_file():
        return f"Nothing to do: {path} is there."
    console = get_console()
    message = "Recording the classes that Spark loads; this takes about half a minute ..."
    if console.is_terminal:
        with console.status(message):
            size = _make(path)
    else:
        console.print(message)
        size = _make(path)
    return f"Spark starts faster from now on: {path} ({size / 1e6:,.0f} MB)"


def _make(path: Path) -> int:
    """Have a process record the archive, and put it in its place whole; returns its size."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Its JVM holds the pipe, so this waits for the end of the JVM too.
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(unfinished)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode or not unfinished.is_file():
            said = done.stdout.strip().splitlines()
            raise StateError(f"no archive was made: {said[-1] if said else 'Java wrote none'}")
        # A JVM crashes on a file of which a part is missing, so it is on the disk before it has its name.
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        size = unfinished.stat().st_size
        unfinished.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"no archive was made: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return size


def record(path: Path) -> None:
    """Do once what pipelines do, so that Spark loads the classes they need."""
    config = {"workers": 2, "spark": dict(recording(path))}
    with penstock.Pipeline("warm-up", program=PROGRAM, config=config) as pipeline:
        for number in range(3):
            with pipeline.transaction():
                pipeline.insert("customers", [{"id": number, "region": "here"}])
                pipeline.insert("orders", [{"id": number, "customer": number, "status": "new", "amount": 1}])
            pipeline.delete("customers", [{"id": 0}])
            pipeline.flush()
        pipeline.query("SELECT region, total FROM by_region ORDER BY region")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
