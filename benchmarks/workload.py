"""The *orders* workload: made once from a seed, written to files, read by every system.

Each transaction is prepared in the form that suits each kind of system: upserts and deletes by key for those
that keep rows, and signed old and new rows for those that can only add. The answer after each transaction is
kept with it, so that a system without transactions of its own can tell when it has caught up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

QUERY = """SELECT region, status, count(*) AS orders, sum(amount) AS total
FROM orders JOIN customers ON orders.c_id = customers.c_id
GROUP BY region, status"""

REGIONS = tuple(f"region-{number:02d}" for number in range(50))
STATUSES = ("new", "paid", "packed", "shipped", "returned")

AMOUNT = pa.decimal128(12, 2)
CUSTOMERS = pa.schema([("c_id", pa.int64()), ("region", pa.string())])
ORDERS = pa.schema([("o_id", pa.int64()), ("c_id", pa.int64()), ("status", pa.string()), ("amount", AMOUNT)])
KEYS = pa.schema([("o_id", pa.int64())])
SIGNED = ORDERS.append(pa.field("sign", pa.int32()))

Answer: TypeAlias = dict[tuple[str, str], tuple[int, int]]
"""(region, status) -> (number of orders, sum of amounts in hundredths): integers compare exactly."""


@dataclass(frozen=True)
class Shape:
    """How much of everything; all sizes follow from the number of orders."""

    orders: int
    transactions: int
    warm_up: int
    changes: int
    bulk_transactions: int
    bulk_warm_up: int
    bulk_changes: int
    customers: int
    seed: int

    @classmethod
    def of(cls, orders: int, transactions: int, seed: int = 7) -> Shape:
        return cls(
            orders=orders,
            transactions=transactions,
            warm_up=min(10, transactions // 5),
            changes=min(1_000, orders // 10),
            bulk_transactions=7,
            bulk_warm_up=2,
            bulk_changes=min(100_000, orders // 10),
            customers=min(100_000, max(len(REGIONS), orders // 10)),
            seed=seed,
        )

    @property
    def steps(self) -> int:
        """Transactions of both sizes together."""
        return self.transactions + self.bulk_transactions


@dataclass(frozen=True)
class Transaction:
    """One prepared transaction; its parts are read from disk when asked for, so none of them fills memory."""

    number: int
    bulk: bool
    measured: bool
    changes: int
    directory: Path

    @cached_property
    def upserts(self) -> pa.Table:
        return feather.read_table(self.part("upserts"), memory_map=False)

    @cached_property
    def deletes(self) -> pa.Table:
        return feather.read_table(self.part("deletes"), memory_map=False)

    @cached_property
    def signed(self) -> pa.Table:
        """Old rows with sign -1 and new rows with sign +1."""
        return feather.read_table(self.part("signed"), memory_map=False)

    @cached_property
    def answer(self) -> Answer:
        return read_answer(self.directory / f"{self.number:04d}.answer.json")

    def part(self, name: str) -> str:
        return str(self.directory / f"{self.number:04d}.{name}.arrow")


@dataclass(frozen=True)
class Workload:
    """A directory with the data of one run."""

    directory: Path

    @cached_property
    def shape(self) -> Shape:
        return Shape(**json.loads((self.directory / "shape.json").read_text()))

    @property
    def customers(self) -> Path:
        """A directory of Parquet files."""
        return self.directory / "customers"

    @property
    def orders(self) -> Path:
        """A directory of Parquet files: the orders of the first load."""
        return self.directory / "orders"

    @property
    def final_orders(self) -> Path:
        """A directory of Parquet files: the orders after the last transaction."""
        return self.directory / "final"

    @property
    def changes(self) -> Path:
        return self.directory / "transactions"

    @cached_property
    def loaded_answer(self) -> Answer:
        return read_answer(self.changes / "load.answer.json")

    @cached_property
    def final_answer(self) -> Answer:
        """The answer that every system must end with."""
        return read_answer(self.directory / "final.answer.json")

    def transactions(self) -> Iterator[Transaction]:
        shape = self.shape
        for number in range(shape.steps):
            bulk = number >= shape.transactions
            place = number - shape.transactions if bulk else number
            yield Transaction(
                number=number,
                bulk=bulk,
                measured=place >= (shape.bulk_warm_up if bulk else shape.warm_up),
                changes=shape.bulk_changes if bulk else shape.changes,
                directory=self.changes,
            )

    def read_customers(self) -> pa.Table:
        return pq.read_table(self.customers)

    def read_orders(self) -> pa.Table:
        return pq.read_table(self.orders)

    def save_shape(self, shape: Shape) -> None:
        (self.directory / "shape.json").write_text(json.dumps(asdict(shape)))


def write_answer(path: Path, answer: Answer) -> None:
    path.write_text(json.dumps(to_rows(answer)))


def read_answer(path: Path) -> Answer:
    return from_rows(json.loads(path.read_text()))


def to_rows(answer: Answer) -> list[list[str | int]]:
    return [[*group, *values] for group, values in sorted(answer.items())]


def from_rows(rows: list[list[str | int]]) -> Answer:
    return {(str(region), str(status)): (int(count), int(total)) for region, status, count, total in rows}
