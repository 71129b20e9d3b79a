"""A whole pipeline with every output that remembers: killed again and again, each has each change once."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock import Pipeline
from tests import delta
from tests.oracle.history import seed_of_run


def connectors(*entries: dict[str, object]) -> str:
    return "WITH ('connectors' = '" + json.dumps(list(entries)) + "')"


def transport(name: str, kind: str, **config: object) -> dict[str, object]:
    return {"name": name, "transport": {"name": kind, "config": config}}


def program(path: Path, uri: str) -> str:
    orders = transport("orders", "delta_table_input", uri=str(path / "orders"), mode="snapshot_and_follow")
    outputs = connectors(
        transport("file", "file_output", path=str(path / "totals.json")),
        transport(
            "mirror", "delta_table_output", uri=str(path / "totals"), mode="mirror", key_columns=["who"]
        ),
        transport("log", "delta_table_output", uri=str(path / "log")),
        transport(
            "table", "postgres_output", uri=uri, table="totals", create_table=True, key_columns=["who"]
        ),
    )
    return f"""
    CREATE TABLE orders (id BIGINT, who STRING, amount BIGINT) {connectors(orders)};
    CREATE VIEW totals {outputs} AS SELECT who, sum(amount) AS total FROM orders GROUP BY who;
    """


def added_up(changes: Iterator[dict[str, object]]) -> Counter[tuple[str, int]]:
    total: Counter[tuple[str, int]] = Counter()
    for row in changes:
        total[row["who"], row["total"]] += row["_weight"] * (1 if row["_change_type"] == "insert" else -1)  # type: ignore[index,operator]
    assert all(count in (0, 1) for count in total.values()), total
    return Counter({row: 1 for row, count in total.items() if count})


def everywhere(path: Path, uri: str) -> dict[str, Counter[tuple[str, int]]]:
    with psycopg.connect(uri) as connection:
        table = Counter(connection.execute("SELECT who, total FROM totals").fetchall())
    return {
        "file": added_up(json.loads(line) for line in (path / "totals.json").read_text().splitlines()),
        "log": added_up(iter(delta.read(path / "log"))),
        "mirror": Counter((row["who"], row["total"]) for row in delta.read(path / "totals")),
        "table": table,
    }


@pytest.mark.slow
def test_every_output_has_every_change_once_after_kills(tmp_path: Path, database: str) -> None:
    seed = seed_of_run()
    random_ = random.Random(seed)
    number = 0

    def orders(rows: int) -> pa.Table:
        nonlocal number
        number += rows
        who = [random_.choice("abcde") for _ in range(rows)]
        amounts = [random_.randrange(100) for _ in range(rows)]
        return pa.table({"id": range(number - rows, number), "who": who, "amount": amounts})

    write_deltalake(tmp_path / "orders", orders(20))
    for round_ in range(3):
        pipeline = Pipeline("exactly-once", program(tmp_path, database), storage=str(tmp_path / "storage"))
        pipeline.start()
        for _ in range(3):
            write_deltalake(tmp_path / "orders", orders(random_.randint(1, 5)), mode="append")
            DeltaTable(tmp_path / "orders").delete(f"id = {random_.randrange(number)}")
            time.sleep(random_.uniform(0, 1.0))
        if round_ < 2:
            pipeline.kill()
    expected: Counter[tuple[str, int]] = Counter()
    for row in DeltaTable(tmp_path / "orders").to_pyarrow_table().to_pylist():
        expected[row["who"]] += row["amount"]
    truth = Counter(dict.fromkeys(expected.items(), 1))
    deadline = time.monotonic() + 120
    while any(found != truth for found in everywhere(tmp_path, database).values()):
        assert time.monotonic() < deadline, f"seed {seed}: {everywhere(tmp_path, database)}, expected {truth}"
        time.sleep(0.2)
    pipeline.stop()
    assert everywhere(tmp_path, database) == dict.fromkeys(("file", "log", "mirror", "table"), truth)
