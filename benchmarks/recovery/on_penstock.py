"""Penstock's part: `python -m benchmarks.recovery.on_penstock write|restart DATA STATE`.

The writer loads, takes a checkpoint, runs every transaction with no checkpoint after it, and waits to be
killed. Whoever starts it again has the whole journal to replay.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import penstock
from benchmarks.events import say
from benchmarks.system import CORES
from benchmarks.workload import QUERY, Answer, Workload

TABLES = """
CREATE TABLE customers (c_id BIGINT PRIMARY KEY, region STRING);
CREATE TABLE orders (o_id BIGINT PRIMARY KEY, c_id BIGINT, status STRING, amount DECIMAL(12, 2));
"""
OUTPUT = "changes.json"
MARK = f".{OUTPUT}.penstock"
BEFORE = "at-the-checkpoint"
"""Where the output is kept as it was when the checkpoint was taken."""


def pipeline(state: Path) -> penstock.Pipeline:
    connector = {"transport": {"name": "file_output", "config": {"path": str(state / OUTPUT)}}}
    view = f"CREATE MATERIALIZED VIEW by_region WITH ('connectors' = '{json.dumps([connector])}') AS {QUERY};"
    config = {"workers": CORES, "fault_tolerance": {"checkpoint_interval_secs": None}}
    return penstock.Pipeline("orders", TABLES + view, str(state / "storage"), config)


def write(workload: Workload, state: Path) -> None:
    with pipeline(state) as running:
        with running.transaction():
            running.insert("customers", workload.read_customers())
            running.insert("orders", workload.read_orders())
        running.flush()
        running.checkpoint()
        before = state / BEFORE
        before.mkdir()
        for name in (OUTPUT, MARK):
            shutil.copy2(state / name, before / name)
        for transaction in workload.transactions():
            with running.transaction():
                running.insert("orders", transaction.upserts)
                running.delete("orders", transaction.deletes)
            running.flush()
            say("transaction", number=transaction.number)
        say("written")
        time.sleep(3_600)


def restart(workload: Workload, state: Path) -> None:
    running = pipeline(state)
    running.start()
    say("running", **running.stats()["recovery"])
    rows = running.query("SELECT region, status, orders, total FROM by_region").to_pylist()
    found: Answer = {(r["region"], r["status"]): (r["orders"], int(r["total"] * 100)) for r in rows}
    say("answer", correct=found == workload.final_answer)


if __name__ == "__main__":
    _, what, data, state = sys.argv
    {"write": write, "restart": restart}[what](Workload(Path(data)), Path(state))
