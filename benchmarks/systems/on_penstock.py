"""Penstock through its public API, with durable state, loaded in either of the ways a user would choose."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import penstock
from benchmarks.system import CORES, Run
from benchmarks.workload import QUERY, Answer, Transaction

PROGRAM = f"""
CREATE TABLE customers (c_id BIGINT PRIMARY KEY, region STRING) %(customers)s;
CREATE TABLE orders (o_id BIGINT PRIMARY KEY, c_id BIGINT, status STRING, amount DECIMAL(12, 2)) %(orders)s;
CREATE MATERIALIZED VIEW by_region AS {QUERY};
"""
POLL_SECONDS = 0.1


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
    """The `System` whose tables follow directories, into which the Parquet files are put."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.customers, self.orders = run.place("customers"), run.place("orders")

    def program(self) -> str:
        return PROGRAM % {"customers": followed(self.customers), "orders": followed(self.orders)}

    def load(self) -> None:
        for target, source in {
            self.customers: self.run.workload.customers,
            self.orders: self.run.workload.orders,
        }.items():
            for part in source.iterdir():
                os.link(part, target / part.name)
        while self._counted() < self.run.workload.shape.orders:
            time.sleep(POLL_SECONDS)

    def _counted(self) -> int:
        """The orders that are in the view; every order has a customer."""
        table = self.pipeline.query("SELECT coalesce(sum(orders), 0) AS counted FROM by_region")
        return int(table["counted"][0].as_py())


def followed(directory: Path) -> str:
    """The properties of a table that takes in every Parquet file of a directory."""
    connector = {
        "transport": {"name": "file_input", "config": {"path": str(directory), "follow": True}},
        "format": {"name": "parquet"},
    }
    return f"WITH ('connectors' = '{json.dumps([connector])}')"
