"""A pipeline on one machine or on several hosts, in a process of its own.

    python -m tests.hosts.shop '{"storage": ..., "config": {"hosts": 2}, "seed": 7, "until": 6}'

It runs the transactions of a random history, which follows from the seed, up to one, and tells what is in
its views. `sinks` is a directory for what outputs write, `source` a file that two connectors read at the
end, if it shall `read`; before that it inserts so many rows in `bulk`. It takes a checkpoint `every` so many
transactions, and after those to `push`. With `watch` it tells which hosts are lost whenever that changes, as
`standby` it begins as one, and in the end it may `wait` to be killed.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import penstock

VIEWS = ("by_region", "idle", "ranked", "whole", "noted", "seen")
REGIONS = ("north", "south", "east", "west", None)
READ = 40
"""Rows of the file that two connectors read."""


def program(sinks: str | None = None, source: str | None = None) -> str:
    written = {"transport": {"name": "file_output", "config": {"path": f"{sinks}/by_region.jsonl"}}}
    read = [
        {"name": name, "paused": True, "transport": {"name": "file_input", "config": {"path": source}}}
        | {"format": {"name": "json", "config": {"update_format": "raw"}}}
        for name in ("first", "second")
    ]
    outputs = f"WITH ('connectors' = '{json.dumps([written])}')" if sinks else ""
    inputs = f"WITH ('connectors' = '{json.dumps(read)}')" if source else ""
    return f"""
    CREATE TABLE customers (id BIGINT PRIMARY KEY, region STRING);
    CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, amount DECIMAL(8, 2));
    CREATE TABLE notes (region STRING, note STRING);
    CREATE TABLE readings (id BIGINT PRIMARY KEY, n BIGINT) {inputs};
    CREATE MATERIALIZED VIEW by_region {outputs} AS
        SELECT c.region, count(*) AS n, sum(o.amount) AS amount, max(o.amount) AS most
        FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region;
    CREATE MATERIALIZED VIEW idle AS
        SELECT c.id FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id;
    CREATE MATERIALIZED VIEW ranked AS
        SELECT region, n, rank() OVER (ORDER BY n DESC, region) AS place FROM by_region;
    CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS n, sum(amount) AS amount FROM orders;
    CREATE MATERIALIZED VIEW noted AS
        SELECT DISTINCT n.note, r.n FROM notes n JOIN by_region r ON n.region = r.region;
    CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n, sum(n) AS s FROM readings;
    """


def write_source(path: Path) -> None:
    """The rows that two connectors read."""
    path.write_text("".join(json.dumps({"id": id_, "n": id_ * id_}) + "\n" for id_ in range(READ)))


def rolled_back(number: int) -> bool:
    return number % 4 == 0


class History:
    """The tables after each transaction, in plain Python."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.number = 0
        self.customers: dict[int, str | None] = {}
        self.orders: dict[int, tuple[int, float]] = {}
        self.notes: Counter[tuple[str | None, str]] = Counter()

    def step(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
        """The changes of the next transaction, which may be one that is rolled back."""
        self.number += 1
        before = deepcopy((self.customers, self.orders, self.notes))
        changes = self._changes()
        if rolled_back(self.number):
            self.customers, self.orders, self.notes = before
        return changes

    def _changes(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
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

    def expected(self, readings: int = 0) -> dict[str, list[list[Any]]]:
        """What the views should have, as `told` tells it, after so many rows of the file were read."""
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
            "seen": told([(readings, sum(id_ * id_ for id_ in range(readings)) if readings else None)]),
        }


def changes_of(seed: int, until: int) -> dict[int, Counter[tuple[Any, ...]]]:
    """What the sink of `by_region` should have of each transaction that changes the view."""
    history, before = History(seed), Counter[tuple[Any, ...]]()
    found: dict[int, Counter[tuple[Any, ...]]] = {}
    while history.number < until:
        history.step()
        after = Counter(tuple(row) for row in history.expected()["by_region"])
        change = Counter(after)
        change.subtract(before)
        if change := Counter({row: weight for row, weight in change.items() if weight}):
            found[history.number] = change
        before = after
    return found


def written(path: Path) -> dict[int, Counter[tuple[Any, ...]]]:
    """What that sink has."""
    found: dict[int, Counter[tuple[Any, ...]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        (row,) = told([(line["region"], line["n"], line["amount"], line["most"])])
        sign = 1 if line["_change_type"] == "insert" else -1
        found.setdefault(line["_transaction"], Counter())[tuple(row)] += sign * line["_weight"]
    return found


def told(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows in an order of their own, with numbers as text of two digits."""
    plain = [[v if v is None or _is_name(v) else f"{float(v):.2f}" for v in row] for row in rows]
    return sorted(plain, key=json.dumps)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not value[:1].isdigit()


def say(**found: Any) -> None:
    print(json.dumps(found, default=str), flush=True)


def run(pipeline: penstock.Pipeline, history: History, options: dict[str, Any]) -> None:
    """The next transaction, if the pipeline does not have it: a client's, if it is to be rolled back."""
    changes = history.step()
    if history.number <= pipeline.last_transaction:
        return
    explicit = rolled_back(history.number)
    if explicit and pipeline.open_transaction is None:  # it is open if the run before was killed in it
        pipeline.start_transaction()
    with pipeline.transaction():
        for action, table, rows in changes:
            getattr(pipeline, action)(table, rows)
    pipeline.flush()
    if explicit:
        pipeline.rollback_transaction()
    assert pipeline.last_transaction == history.number
    if history.number % options.get("every", sys.maxsize) == 0:
        pipeline.checkpoint()
    if history.number in options.get("push", ()):
        pipeline.checkpoint()
        say(pushed=pipeline.sync_checkpoint())
    say(transaction=history.number)


def watch(pipeline: penstock.Pipeline) -> None:
    """Tell which hosts are lost, whenever that changes."""
    before: list[str] = []
    while True:
        hosts = (pipeline.stats()["hosts"] or {}).get("hosts", ())
        now = [host["lost"].split(" has ")[0] for host in hosts if host["lost"]]
        if now != before:
            say(lost=now)
        before = now
        time.sleep(0.2)


def stand_by(pipeline: penstock.Pipeline) -> None:
    """Tell what was fetched, until a line comes: then take over."""
    before: Any = None
    asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
    while not asked.wait(0.2):
        standby = pipeline.stats()["standby"]
        if (standby["transaction"], standby["error"]) != before:
            before = standby["transaction"], standby["error"]
            say(followed=standby["transaction"], error=standby["error"])
    pipeline.activate()


def main(options: dict[str, Any]) -> None:
    config = {"workers": 1, **options["config"]}
    text = program(options.get("sinks"), options.get("source"))
    pipeline = penstock.Pipeline("shop", text, storage=options["storage"], config=config)
    pipeline.start(standby=options.get("standby", False))
    if options.get("standby"):
        stand_by(pipeline)
    if options.get("watch"):
        threading.Thread(target=watch, args=(pipeline,), daemon=True).start()
    say(began=pipeline.last_transaction)
    history = History(options["seed"])
    while history.number < options["until"]:
        run(pipeline, history, options)
    if options.get("bulk"):
        pipeline.insert("readings", [{"id": id_, "n": id_ * id_} for id_ in range(options["bulk"])])
        pipeline.flush()
    if options.get("read"):
        pipeline.resume_connector("first")
        pipeline.resume_connector("second")
        pipeline.wait()
    found = {view: pipeline.query(f"SELECT * FROM {view}").to_pylist() for view in VIEWS}
    say(views={view: told([tuple(row.values()) for row in rows]) for view, rows in found.items()})
    say(stats=pipeline.stats())
    if options.get("wait"):
        sys.stdin.read()
    pipeline.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
