"""Pathway with persistence: upserts by key through its Python connector.

It has no exact decimal type, so it sums whole hundredths.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.system import CORES, Run
from benchmarks.systems.follower import Follower
from benchmarks.workload import Answer, Transaction

os.environ["PATHWAY_THREADS"] = str(CORES)  # read when it is imported
import pathway as pw  # type: ignore[import-not-found, unused-ignore]

GONE = {"c_id": 0, "status": "", "cents": 0}
"""A delete names its key; the rest of the row is not looked at."""


class Customer(pw.Schema):  # type: ignore[misc, unused-ignore]
    c_id: int = pw.column_definition(primary_key=True)
    region: str


class Order(pw.Schema):  # type: ignore[misc, unused-ignore]
    o_id: int = pw.column_definition(primary_key=True)
    c_id: int
    status: str
    cents: int


@dataclass(frozen=True)
class Batch:
    """What is sent at once and becomes one step of the engine."""

    upserts: Iterable[dict[str, Any]]
    deletes: Iterable[dict[str, Any]] = ()


class Feed(pw.io.python.ConnectorSubject):  # type: ignore[misc, unused-ignore]
    """An input that sends the batches it is given until it is given None."""

    def __init__(self) -> None:
        super().__init__(session_type="upsert")
        self.batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (batch := self.batches.get()) is not None:
            for row in batch.upserts:
                self.next(**row)
            for row in batch.deletes:
                self.delete(**row)
            self.commit()


class Pathway:
    """The `System` of Pathway, running in a thread of this process."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.follower = Follower()
        self.customers, self.orders = Feed(), Feed()
        self.engine = threading.Thread(target=self._run_engine, daemon=True)

    def start(self) -> None:
        read = pw.io.python.read
        customers = read(self.customers, schema=Customer, autocommit_duration_ms=None, name="customers")
        orders = read(self.orders, schema=Order, autocommit_duration_ms=None, name="orders")
        joined = orders.join(customers, orders.c_id == customers.c_id).select(
            customers.region, orders.status, orders.cents
        )
        view = joined.groupby(joined.region, joined.status).reduce(
            joined.region,
            joined.status,
            orders=pw.reducers.count(),
            total=pw.reducers.sum(joined.cents),
        )
        pw.io.subscribe(view, on_change=self._receive)
        self.engine.start()

    def load(self) -> None:
        self.follower.expect(self.run.workload.loaded_answer)
        self.customers.batches.put(Batch(rows(self.run.workload.read_customers())))
        self.customers.batches.put(None)  # an open input without news would hold back the time of the other
        self.orders.batches.put(Batch(rows(self.run.workload.read_orders())))
        self.follower.wait()

    def prepare(self, transaction: Transaction) -> None:
        """Its connector takes Python rows, so they are made before the clock starts."""
        deletes = [{"o_id": key, **GONE} for key in transaction.deletes["o_id"].to_pylist()]
        self.prepared = Batch(list(rows(transaction.upserts)), deletes)
        self.follower.expect(transaction.answer)

    def apply(self, transaction: Transaction) -> None:
        self.orders.batches.put(self.prepared)
        self.follower.wait()

    def answer(self) -> Answer:
        return dict(self.follower.answer)

    def stop(self) -> None:
        self.customers.batches.put(None)
        self.orders.batches.put(None)
        if self.engine.is_alive():
            self.engine.join(timeout=30)

    def _run_engine(self) -> None:
        backend = pw.persistence.Backend.filesystem(str(self.run.place("state")))
        config = pw.persistence.Config(backend=backend)
        pw.run(persistence_config=config, monitoring_level=pw.MonitoringLevel.NONE)

    def _receive(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        group = (row["region"], row["status"])
        if is_addition:
            self.follower.put(group, (row["orders"], row["total"]))


def rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table as Python objects, a batch at a time."""
    if "amount" in table.column_names:
        cents = pc.cast(pc.multiply(table["amount"], pa.scalar(100)), pa.int64())
        table = table.drop_columns(["amount"]).append_column("cents", cents)
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()
