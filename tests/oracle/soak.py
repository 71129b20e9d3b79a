"""The shop that the soak test runs: five views with joins, aggregates and windows, and its traffic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.oracle.cases import Case
from tests.oracle.domains import RowMaker
from tests.oracle.model import Action, Model, Operation, Row, Transaction

SCHEMA = """
CREATE TABLE customer (id INT NOT NULL PRIMARY KEY, region STRING, rating DOUBLE);
CREATE TABLE orders (
    id INT NOT NULL PRIMARY KEY,
    customer_id INT,
    status STRING,
    amount DECIMAL(10, 2),
    weight DOUBLE,
    placed TIMESTAMP
);
CREATE TABLE visit (customer_id INT, page STRING, seconds INT);
"""

_BY_STATUS = """CREATE VIEW by_status AS
SELECT c.region, o.status, count(*) AS orders, sum(o.amount) AS revenue, avg(o.weight) AS weight
FROM orders o JOIN customer c ON o.customer_id = c.id
GROUP BY c.region, o.status"""

VIEWS = [
    Case(
        "soak",
        "revenue",
        "SELECT region, sum(orders) AS orders, sum(revenue) AS revenue, max(weight) AS weight\n"
        "FROM by_status GROUP BY region",
        helpers=(_BY_STATUS,),
    ),
    Case(
        "soak",
        "best orders",
        "SELECT id, customer_id, amount, rn FROM (\n"
        "  SELECT id, customer_id, amount,\n"
        "         row_number() OVER (PARTITION BY customer_id ORDER BY amount DESC, id) AS rn FROM orders)\n"
        "WHERE rn <= 3",
    ),
    Case(
        "soak",
        "idle customers",
        "SELECT c.id, c.region FROM customer c\n"
        "WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.status = 'open')",
    ),
    Case(
        "soak",
        "attention",
        "SELECT c.id, count(v.page) AS visits, max(v.seconds) AS longest, count(DISTINCT v.page) AS pages,\n"
        "       min(c.rating) AS rating\n"
        "FROM customer c LEFT JOIN visit v ON v.customer_id = c.id GROUP BY c.id",
    ),
    Case(
        "soak",
        "rank of regions",
        "SELECT region, status, revenue, rank() OVER (PARTITION BY status ORDER BY revenue DESC) AS place,\n"
        "       sum(orders) OVER (PARTITION BY region ORDER BY status) AS running\n"
        "FROM by_status",
    ),
]

CUSTOMERS, ORDERS = 400, 30_000
_OPENING = datetime(2024, 1, 1, tzinfo=UTC)


def _customer(rng: Random) -> dict[str, Any]:
    return {
        "id": rng.randrange(CUSTOMERS),
        "region": rng.choice(("north", "south", "east", "west", None)),
        "rating": rng.choice((0.5, 1.5, float("nan"), -0.0, None)),
    }


def _order(rng: Random) -> dict[str, Any]:
    return {
        "id": rng.randrange(ORDERS),
        "customer_id": rng.choice((None, *rng.choices(range(CUSTOMERS), k=9))),
        "status": rng.choice(("open", "paid", "sent")),
        "amount": Decimal(rng.randrange(100, 100_000)) / 100,
        "weight": rng.choice((None, round(rng.uniform(0.1, 40), 2))),
        "placed": _OPENING + timedelta(minutes=rng.randrange(100_000)),
    }


def _visit(rng: Random) -> dict[str, Any]:
    return {
        "customer_id": rng.randrange(CUSTOMERS),
        "page": rng.choice(("home", "cart", "help", None)),
        "seconds": rng.randrange(20),
    }


MAKERS: Mapping[str, RowMaker] = {"customer": _customer, "orders": _order, "visit": _visit}


def size_of_transaction(rng: Random) -> int:
    """Mostly 1 to 50 rows, now and then 2,000."""
    return 2_000 if rng.random() < 0.02 else rng.randrange(1, 51)


def transaction(rng: Random, model: Model) -> Transaction:
    """One random transaction on one or two tables; a third of it deletes."""
    size = size_of_transaction(rng)
    names = rng.sample(tuple(MAKERS), rng.randrange(1, 3))
    return tuple(operation for name in names for operation in _operations(rng, model, name, size))


def _operations(rng: Random, model: Model, name: str, size: int) -> list[Operation]:
    present = model.tables[name].rows
    gone: list[Row] = rng.sample(present, min(size // 3, len(present) // 2))
    fresh = tuple(MAKERS[name](rng) for _ in range(size - len(gone)))
    inserts = [Operation(Action.INSERT, name, fresh)] if fresh else []
    return [*inserts, Operation(Action.DELETE, name, tuple(gone))] if gone else inserts
