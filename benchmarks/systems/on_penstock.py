"""Penstock through its public API, with durable state, loaded in either of the ways a user would choose."""

from __future__ import annotations

import json
from pathlib import Path

import penstock
from benchmarks.system import CORES, Run
from benchmarks.workload import QUERY, Answer, Transaction

PROGRAM = f"""
CREATE TABLE customers (c_id BIGINT PRIMARY KEY, region STRING) %(customers)s;
CREATE TABLE orders (o_id BIGINT PRIMARY KEY, c_id BIGINT, status STRING, amount DECIMAL(12, 2)) %(orders)s;
CREATE MATERIALIZED VIEW by_region AS {QUERY};
"""


class Inserted:
    """The `System` whose tables are read here and given to `insert`."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def program(self) -> str:
        return PROGRAM % {"customers": "", "orders": ""}

    def start(self) -> None:
        storage = self.run.place("storage")
        self.pipeline = penstock.Pipeline(
            "orders", program=self.program(), storage=str(storage), config={"workers": CORES}
        )
        self.pipeline.start()
        self.pipeline.query("SELECT count(*) FROM range(1000000)")  # the same warm-up as Spark's own

    def load(self) -> None:
        with self.pipeline.transaction():
            self.pipeline.insert("customers", self.run.workload.read_customers())
            self.pipeline.insert("orders", self.run.workload.read_orders())
        self.pipeline.flush()

    def prepare(self, transaction: Transaction) -> None:
        """The transaction is read into memory, where it would arrive."""
        _ = transaction.upserts, transaction.deletes

    def apply(self, transaction: Transaction) -> None:
        with self.pipeline.transaction():
            self.pipeline.insert("orders", transaction.upserts)
            self.pipeline.delete("orders", transaction.deletes)
        self.pipeline.flush()

    def answer(self) -> Answer:
        rows = self.pipeline.query("SELECT region, status, orders, total FROM by_region").to_pylist()
        return {(row["region"], row["status"]): (row["orders"], int(row["total"] * 100)) for row in rows}

    def stop(self) -> None:
        if hasattr(self, "pipeline"):
            self.pipeline.stop()


class FromFiles(Inserted):
    """The `System` whose tables have the Parquet files for input, taken in as one transaction."""

    def program(self) -> str:
        workload = self.run.workload
        return PROGRAM % {"customers": read(workload.customers), "orders": read(workload.orders)}

    def load(self) -> None:
        self.pipeline.start_transaction()
        for connector in self.pipeline.stats()["inputs"]:
            self.pipeline.resume_connector(connector)
        self.pipeline.wait()
        self.pipeline.commit_transaction()


def read(directory: Path) -> str:
    """The properties of a table whose rows are the Parquet files of a directory, once they are asked for."""
    connector = {
        "transport": {"name": "file_input", "config": {"path": str(directory)}},
        "format": {"name": "parquet"},
        "paused": True,
    }
    return f"WITH ('connectors' = '{json.dumps([connector])}')"
