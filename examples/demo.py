"""A small shop whose views follow its orders: `make demo`, or `python -m examples.demo`.

It starts a pipeline in this process, sends it changes for about a quarter of a minute, shows the views after
each transaction, rolls one transaction back, asks an ad-hoc question, and ends.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

import penstock

SECONDS = 12.0
CUSTOMERS = 200
ORDERS = 2_000
REGIONS = ("north", "south", "east", "west")
STATUSES = ("new", "paid", "sent", "returned")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

SQL = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING, region STRING);
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL, amount DECIMAL(8, 2), status STRING,
  ordered_at TIMESTAMP
);

-- a join and a group by
CREATE MATERIALIZED VIEW by_region AS
SELECT c.region, count(*) AS orders, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer_id = c.id
WHERE o.status <> 'returned'
GROUP BY c.region;

-- the best five
CREATE MATERIALIZED VIEW top_customers AS
SELECT c.name, c.region, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer_id = c.id
WHERE o.status <> 'returned'
GROUP BY c.id, c.name, c.region
ORDER BY amount DESC, c.name
LIMIT 5;

-- a running sum
CREATE MATERIALIZED VIEW running_total AS
SELECT customer_id, id, ordered_at, amount,
       sum(amount) OVER (PARTITION BY customer_id ORDER BY ordered_at, id) AS total
FROM orders;
"""

FIRST_CUSTOMER_TOTALS = """
SELECT id, amount, total FROM running_total WHERE customer_id = 1 ORDER BY ordered_at DESC, id DESC LIMIT 5
"""

ADHOC = """
SELECT c.region, o.status, count(*) AS orders, round(avg(o.amount), 2) AS average
FROM orders o JOIN customers c ON o.customer_id = c.id
WHERE o.status IN ('new', 'returned')
GROUP BY ALL ORDER BY ALL
"""


@dataclass
class Shop:
    """What happens in the shop: the same on every run."""

    chance: random.Random = field(default_factory=lambda: random.Random(7))
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    next_order: int = 0

    def customers(self) -> list[dict[str, Any]]:
        firsts = ("Ada", "Alan", "Barbara", "Edgar", "Grace", "Leslie", "Margaret", "Niklaus")
        lasts = ("Hopper", "Lamport", "Liskov", "Codd", "Turing", "Wirth", "Hamilton", "Lovelace")
        return [
            {
                "id": number,
                "name": f"{self.chance.choice(firsts)} {self.chance.choice(lasts)}",
                "region": self.chance.choice(REGIONS),
            }
            for number in range(CUSTOMERS)
        ]

    def new_order(self) -> dict[str, Any]:
        number = self.next_order
        self.next_order += 1
        self.orders[number] = {
            "id": number,
            "customer_id": int(self.chance.triangular(0, CUSTOMERS, 0)),
            "amount": Decimal(self.chance.randrange(100, 20_000)) / 100,
            "status": "new",
            "ordered_at": START + dt.timedelta(minutes=number),
        }
        return self.orders[number]

    def updated_order(self) -> dict[str, Any]:
        order = self.orders[self.chance.choice(list(self.orders))]
        order["status"] = self.chance.choice(STATUSES)
        return order

    def cancelled_order(self) -> dict[str, Any]:
        number = self.chance.choice(list(self.orders))
        del self.orders[number]
        return {"id": number}


@dataclass
class Screen:
    """The views side by side; amounts that moved since the last transaction are marked."""

    pipeline: penstock.Pipeline
    before: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def draw(self, heading: str) -> RenderableType:
        tables = Columns(
            [
                self._table("by_region", "SELECT * FROM by_region ORDER BY region", keys=1),
                self._table(
                    "top_customers", "SELECT * FROM top_customers ORDER BY amount DESC, name", keys=2
                ),
                self._table("running_total of customer 1", FIRST_CUSTOMER_TOTALS, keys=1),
            ]
        )
        return Group(Text(heading, "bold"), tables)

    def _table(self, title: str, query: str, keys: int) -> Table:
        rows = self.pipeline.query(query).to_pylist()
        table = Table(title=title, title_justify="left")
        for row in rows[:1]:
            for position, name in enumerate(row):
                table.add_column(name, justify="left" if position < keys else "right")
        for row in rows:
            table.add_row(*self._cells(title, row, keys))
        return table

    def _cells(self, title: str, row: Mapping[str, Any], keys: int) -> Iterator[Text]:
        identity = tuple(str(value) for value in list(row.values())[:keys])
        for position, (name, value) in enumerate(row.items()):
            place = (title, name, *identity)
            moved = position >= keys and self.before.get(place, value) != value
            self.before[place] = value
            yield Text(f"{value:,}" if position >= keys else str(value), "bold green" if moved else "")


def one_transaction(pipeline: penstock.Pipeline, shop: Shop) -> tuple[str, float]:
    """Some orders come, some change, some are cancelled, all at once; what it was, and how long it took."""
    new, updated, cancelled = (shop.chance.randrange(*bounds) for bounds in ((20, 80), (10, 40), (1, 8)))
    started = time.perf_counter()
    with pipeline.transaction():
        pipeline.insert("orders", [shop.new_order() for _ in range(new)])
        pipeline.insert("orders", [shop.updated_order() for _ in range(updated)])
        pipeline.delete("orders", [shop.cancelled_order() for _ in range(cancelled)])
    pipeline.flush()
    milliseconds = (time.perf_counter() - started) * 1000
    return f"{new} new, {updated} updated and {cancelled} cancelled orders", milliseconds


def watch_the_views(console: Console, pipeline: penstock.Pipeline, shop: Shop) -> None:
    screen = Screen(pipeline)
    console.print(screen.draw(f"After the first load: {CUSTOMERS} customers, {ORDERS:,} orders"))
    console.print()
    until = time.monotonic() + SECONDS
    with Live(console=console, auto_refresh=False) as live:
        number = 0
        while time.monotonic() < until:
            number += 1
            what, milliseconds = one_transaction(pipeline, shop)
            heading = f"Transaction {number}: {what}, in the views after {milliseconds:,.0f} ms"
            live.update(screen.draw(heading), refresh=console.is_terminal)
            if not console.is_terminal:
                console.print(heading, highlight=False)


class SecondThoughts(Exception):  # noqa: N818 - it is not an error, only a reason to roll back
    """Raised inside a transaction, which therefore never happened."""


def roll_back(console: Console, pipeline: penstock.Pipeline, shop: Shop) -> None:
    console.rule("A transaction that is rolled back")
    total = "SELECT sum(amount) AS amount, sum(orders) AS orders FROM by_region"
    before = pipeline.query(total).to_pylist()
    try:
        with pipeline.transaction():
            pipeline.insert(
                "orders", [shop.new_order() | {"amount": Decimal("999999.99")} for _ in range(100)]
            )
            pipeline.delete("customers", [{"id": number} for number in range(CUSTOMERS)])
            raise SecondThoughts
    except SecondThoughts:
        console.print(
            "100 huge orders and the end of all customers, and then an exception: nothing of it happened."
        )
    after = pipeline.query(total).to_pylist()
    console.print(f"before: {before[0]['orders']:,} orders for {before[0]['amount']:,}", highlight=False)
    console.print(f"after:  {after[0]['orders']:,} orders for {after[0]['amount']:,}", highlight=False)
    if before != after:
        raise AssertionError("a rolled-back transaction changed a view")


def ask(console: Console, pipeline: penstock.Pipeline) -> None:
    console.rule("An ad-hoc question over tables and views")
    console.print(Text(ADHOC.strip(), "dim"))
    answer = pipeline.query(ADHOC)
    table = Table()
    for name in answer.column_names:
        table.add_column(name)
    for row in answer.to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def main() -> None:
    console = Console()
    console.rule("Penstock: a small shop")
    shop = Shop()
    with console.status("Starting Spark ..."):
        pipeline = penstock.Pipeline("shop", program=SQL, config={"workers": 2})
        pipeline.start()
    try:
        with console.status("Loading customers and orders ..."), pipeline.transaction():
            pipeline.insert("customers", shop.customers())
            pipeline.insert("orders", [shop.new_order() for _ in range(ORDERS)])
        pipeline.flush()
        watch_the_views(console, pipeline, shop)
        roll_back(console, pipeline, shop)
        ask(console, pipeline)
        console.rule("How by_region is kept up to date")
        console.print(Text(pipeline.explain("by_region")))
    finally:
        pipeline.stop()
    console.rule("What to try next")
    console.print(
        "penstock run examples/shop.sql      the same with generated input, and a live table\n"
        "penstock explain examples/shop.sql  how each view is kept up to date\n"
        "examples/demo.py                    this program\n"
        "docs/                               a tutorial, recipes, and the reference",
        highlight=False,
    )


if __name__ == "__main__":
    main()
