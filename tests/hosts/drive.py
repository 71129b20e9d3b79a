"""A pipeline on several hosts, in a process of its own: `python -m tests.hosts.drive '{"storage": ...}'`.

It runs some transactions of a random history, which follows from the seed, and tells what is in its views.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from decimal import Decimal
from typing import Any

import penstock

PROGRAM = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, region STRING);
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, amount DECIMAL(8, 2));
CREATE TABLE notes (region STRING, note STRING);
CREATE MATERIALIZED VIEW by_region AS
    SELECT c.region, count(*) AS n, sum(o.amount) AS amount, max(o.amount) AS most
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region;
CREATE MATERIALIZED VIEW idle AS
    SELECT c.id FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id;
CREATE MATERIALIZED VIEW ranked AS
    SELECT region, n, rank() OVER (ORDER BY n DESC, region) AS place FROM by_region;
CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS n, sum(amount) AS amount FROM orders;
CREATE MATERIALIZED VIEW noted AS
    SELECT DISTINCT n.note, r.n FROM notes n JOIN by_region r ON n.region = r.region;
"""
VIEWS = ("by_region", "idle", "ranked", "whole", "noted")
REGIONS = ("north", "south", "east", "west", None)


class History:
    """The tables after each transaction, in plain Python."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.customers: dict[int, str | None] = {}
        self.orders: dict[int, tuple[int, float]] = {}
        self.notes: Counter[tuple[str | None, str]] = Counter()

    def step(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
        """The changes of the next transaction."""
        chance = self._chance
        customers = {chance.randrange(30): chance.choice(REGIONS) for _ in range(chance.randrange(1, 6))}
        self.customers |= customers
        orders = {
            chance.randrange(200): (chance.randrange(30), chance.randrange(10_000) / 100)
            for _ in range(chance.randrange(1, 60))
        }
        self.orders |= orders
        gone = chance.sample(sorted(self.orders), k=min(len(self.orders), chance.randrange(10)))
        for id_ in gone:
            del self.orders[id_]
        region, note = chance.choice(REGIONS), f"note {chance.randrange(4)}"
        self.notes[region, note] += 1
        rows = [{"id": i, "customer": c, "amount": Decimal(f"{a:.2f}")} for i, (c, a) in orders.items()]
        return [
            ("insert", "customers", [{"id": i, "region": r} for i, r in customers.items()]),
            ("insert", "orders", rows),
            *([("delete", "orders", [{"id": id_} for id_ in gone])] if gone else []),
            ("insert", "notes", [{"region": region, "note": note}]),
        ]

    def expected(self) -> dict[str, list[list[Any]]]:
        """What the views should have, as `told` tells it."""
        regions: dict[str | None, list[float]] = {}
        for customer, amount in self.orders.values():
            if customer in self.customers:
                regions.setdefault(self.customers[customer], []).append(amount)
        by_region = [(r, len(a), sum(a), max(a)) for r, a in regions.items()]
        busy = {customer for customer, _ in self.orders.values()}
        order = sorted(by_region, key=lambda row: (-row[1], row[0] is not None, row[0] or ""))
        noted = {(note, len(regions[r])) for r, note in self.notes if r is not None and r in regions}
        total = sum(amount for _, amount in self.orders.values()) if self.orders else None
        return {
            "by_region": told(by_region),
            "idle": told([(id_,) for id_ in self.customers if id_ not in busy]),
            "ranked": told([(row[0], row[1], place + 1) for place, row in enumerate(order)]),
            "whole": told([(len(self.orders), total)]),
            "noted": told(list(noted)),
        }


def told(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows in an order of their own, with numbers as text of two digits."""
    plain = [[v if v is None or isinstance(v, str) else f"{float(v):.2f}" for v in row] for row in rows]
    return sorted(plain, key=json.dumps)


def main(options: dict[str, Any]) -> None:
    """Run transactions until a number, behind those that are in the storage, and push after some of them."""
    history = History(options["seed"])
    config = {"workers": 1, **options["config"]}
    pipeline = penstock.Pipeline("on hosts", PROGRAM, storage=options["storage"], config=config)
    pipeline.start(standby=options["standby"])
    if options["standby"]:
        stand_by(pipeline)
    done = pipeline.last_transaction
    print(json.dumps({"began": done}), flush=True)
    for number in range(1, options["until"] + 1):
        changes = history.step()
        if number <= done:
            continue
        with pipeline.transaction():
            for action, table, rows in changes:
                getattr(pipeline, action)(table, rows)
        pipeline.flush()
        if number in options["push"]:
            pipeline.checkpoint()
            print(json.dumps({"pushed": pipeline.sync_checkpoint()}), flush=True)
        print(json.dumps({"transaction": pipeline.last_transaction}), flush=True)
    found = {view: pipeline.query(f"SELECT * FROM {view}").to_pylist() for view in VIEWS}
    views = {view: told([tuple(row.values()) for row in rows]) for view, rows in found.items()}
    print(json.dumps({"views": views}), flush=True)
    print(json.dumps({"stats": pipeline.stats()}, default=str), flush=True)
    if options["wait"]:
        sys.stdin.read()
    pipeline.stop()


def stand_by(pipeline: penstock.Pipeline) -> None:
    """Tell what was fetched, until a line comes: then take over."""
    told: Any = None
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
    while not asked.wait(0.2):
        standby = pipeline.stats()["standby"]
        if (standby["transaction"], standby["error"]) != told:
            told = (standby["transaction"], standby["error"])
            print(json.dumps({"followed": told[0], "error": told[1]}), flush=True)
    pipeline.activate()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
