"""Makes the files of a workload: the first load, every transaction, and the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from benchmarks.workload import (
    AMOUNT,
    CUSTOMERS,
    KEYS,
    ORDERS,
    QUERY,
    REGIONS,
    SIGNED,
    STATUSES,
    Answer,
    Shape,
    Transaction,
    Workload,
    write_answer,
)

Ints: TypeAlias = npt.NDArray[np.int64]

ROWS_PER_FILE = 250_000
STATUS_NAMES = pa.array(STATUSES, pa.string())
REGION_NAMES = pa.array(REGIONS, pa.string())


class Orders:
    """The orders as arrays indexed by o_id, with room for those still to come."""

    def __init__(self, shape: Shape) -> None:
        self.random = np.random.default_rng(shape.seed)
        self.customers = shape.customers
        room = (
            shape.orders + shape.transactions * shape.changes + shape.bulk_transactions * shape.bulk_changes
        )
        self.customer: Ints = np.zeros(room, np.int64)
        self.status: Ints = np.zeros(room, np.int64)
        self.cents: Ints = np.zeros(room, np.int64)
        self.live = np.zeros(room, np.bool_)
        self.next_id = 0
        self.region: Ints = self.random.integers(0, len(REGIONS), shape.customers)
        self.insert(shape.orders)

    def insert(self, count: int) -> Ints:
        """New orders, each with the next free o_id."""
        ids: Ints = np.arange(self.next_id, self.next_id + count)
        self.next_id += count
        self.customer[ids] = self.random.integers(0, self.customers, count)
        self.live[ids] = True
        self.update(ids)
        return ids

    def update(self, ids: Ints) -> None:
        self.status[ids] = self.random.integers(0, len(STATUSES), len(ids))
        self.cents[ids] = self.random.integers(1, 1_000_000, len(ids))

    def pick(self, count: int) -> Ints:
        """Distinct orders that exist."""
        picked: Ints = self.random.choice(np.flatnonzero(self.live), count, replace=False)
        return picked

    def table(self, ids: Ints) -> pa.Table:
        columns = [
            pa.array(ids),
            pa.array(self.customer[ids]),
            STATUS_NAMES.take(pa.array(self.status[ids])),
            to_decimal(self.cents[ids]),
        ]
        return pa.Table.from_arrays(columns, schema=ORDERS)

    def answer(self) -> Answer:
        ids = np.flatnonzero(self.live)
        group = self.region[self.customer[ids]] * len(STATUSES) + self.status[ids]
        groups = len(REGIONS) * len(STATUSES)
        counts = np.bincount(group, minlength=groups)
        # float weights stay exact: the sums are far below 2**53
        totals = np.bincount(group, self.cents[ids], minlength=groups)
        return {
            (REGIONS[number // len(STATUSES)], STATUSES[number % len(STATUSES)]): (count, int(totals[number]))
            for number, count in enumerate(counts.tolist())
            if count
        }


def generate(directory: Path, shape: Shape, progress: Callable[[], None]) -> Workload:
    """Write a workload; calls progress after each transaction."""
    workload = Workload(directory)
    workload.changes.mkdir(parents=True)
    workload.save_shape(shape)
    orders = Orders(shape)
    customers = [pa.array(np.arange(shape.customers)), REGION_NAMES.take(pa.array(orders.region))]
    write_parquet(workload.customers, pa.Table.from_arrays(customers, schema=CUSTOMERS))
    write_parquet(workload.orders, orders.table(np.arange(shape.orders)))
    write_answer(workload.changes / "load.answer.json", orders.answer())
    for transaction in workload.transactions():
        write_transaction(orders, transaction)
        progress()
    write_parquet(workload.final_orders, orders.table(np.flatnonzero(orders.live)))
    write_answer(directory / "final.answer.json", ask_duckdb(workload))
    return workload


def write_transaction(orders: Orders, transaction: Transaction) -> None:
    """Make one transaction's changes: 80% updates, 10% deletes, 10% inserts, in random order."""
    tenth = transaction.changes // 10
    touched = orders.pick(transaction.changes - tenth)
    deleted, updated = touched[:tenth], touched[tenth:]
    old = orders.table(touched)
    orders.live[deleted] = False
    orders.update(updated)
    upserted = orders.random.permutation(np.concatenate([updated, orders.insert(tenth)]))
    new = orders.table(upserted)
    save(transaction.part("upserts"), new)
    save(transaction.part("deletes"), pa.Table.from_arrays([pa.array(deleted)], schema=KEYS))
    save(transaction.part("signed"), pa.concat_tables([with_sign(old, -1), with_sign(new, 1)]))
    write_answer(transaction.directory / f"{transaction.number:04d}.answer.json", orders.answer())


def with_sign(rows: pa.Table, sign: int) -> pa.Table:
    return rows.append_column(SIGNED.field("sign"), pa.array(np.full(rows.num_rows, sign, np.int32)))


def to_decimal(cents: Ints) -> pa.Array:
    """Hundredths as decimals, with no Python object each: a decimal128 is its unscaled value in 16 bytes."""
    halves = np.empty((len(cents), 2), np.int64)
    halves[:, 0] = cents
    halves[:, 1] = cents >> 63
    return pa.Array.from_buffers(AMOUNT, len(cents), [None, pa.py_buffer(halves)])


def save(path: str, table: pa.Table) -> None:
    feather.write_feather(table, path, compression="uncompressed")


def write_parquet(directory: Path, table: pa.Table) -> None:
    """Several files, so that every engine can read them in parallel."""
    directory.mkdir()
    for number, start in enumerate(range(0, table.num_rows, ROWS_PER_FILE)):
        pq.write_table(table.slice(start, ROWS_PER_FILE), directory / f"part-{number:04d}.parquet")


def ask_duckdb(workload: Workload) -> Answer:
    """The right answer, from an engine that shares no code with the systems on Spark."""
    with duckdb.connect() as connection:
        for name, path in {"customers": workload.customers, "orders": workload.final_orders}.items():
            connection.read_parquet(f"{path}/*.parquet").create_view(name)
        rows = connection.sql(QUERY).fetchall()
    return {(region, status): (count, int(total * 100)) for region, status, count, total in rows}
