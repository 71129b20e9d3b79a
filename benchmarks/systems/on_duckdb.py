"""DuckDB on a file: apply the changes by primary key, then run the query again."""

from __future__ import annotations

import duckdb

from benchmarks.system import CORES, Run
from benchmarks.workload import QUERY, Answer, Transaction


class DuckDB:
    """The `System` of recomputation in a fast engine."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.result: Answer = {}

    def start(self) -> None:
        path = self.run.place("database") / "orders.duckdb"
        self.connection = duckdb.connect(str(path), config={"threads": CORES})

    def load(self) -> None:
        workload, execute = self.run.workload, self.connection.execute
        execute("CREATE TABLE customers (c_id BIGINT PRIMARY KEY, region VARCHAR)")
        execute(
            """CREATE TABLE orders
            (o_id BIGINT PRIMARY KEY, c_id BIGINT, status VARCHAR, amount DECIMAL(12, 2))"""
        )
        execute(f"INSERT INTO customers FROM read_parquet('{workload.customers}/*.parquet')")
        execute(f"INSERT INTO orders FROM read_parquet('{workload.orders}/*.parquet')")
        self._query()

    def prepare(self, transaction: Transaction) -> None:
        self.connection.register("upserts", transaction.upserts)
        self.connection.register("deletes", transaction.deletes)

    def apply(self, transaction: Transaction) -> None:
        self.connection.execute("BEGIN")
        self.connection.execute("DELETE FROM orders USING deletes WHERE orders.o_id = deletes.o_id")
        self.connection.execute("INSERT OR REPLACE INTO orders FROM upserts")
        self.connection.execute("COMMIT")
        self._query()

    def answer(self) -> Answer:
        return self.result

    def stop(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    def _query(self) -> None:
        rows = self.connection.execute(QUERY).fetchall()
        self.result = {(region, status): (count, int(total * 100)) for region, status, count, total in rows}
