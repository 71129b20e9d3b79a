"""A pipeline fed by `datagen` at a steady rate, until it is killed or has everything.

Arguments: storage, workers, rows, rate, most rows of a transaction, file for the changes.
"""

from __future__ import annotations

import json
import sys

import penstock


def program(rows: int, rate: int, batch: int, out: str) -> str:
    plan = [{"limit": rows, "rate": rate, "fields": {"n": {"strategy": "uniform", "range": [0, 1000]}}}]
    made = [
        {
            "name": "made",
            "max_batch_size": batch,
            "transport": {"name": "datagen", "config": {"seed": 11, "plan": plan}},
        }
    ]
    written = [{"transport": {"name": "file_output", "config": {"path": out}}}]
    return f"""
    CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT) WITH ('connectors' = '{json.dumps(made)}');
    CREATE VIEW sums WITH ('connectors' = '{json.dumps(written)}') AS
        SELECT id % 5 AS g, count(*) AS c, sum(n) AS s, max(n) AS m FROM t GROUP BY id % 5;
    """


def main(storage: str, workers: str, rows: str, rate: str, batch: str, out: str) -> None:
    text = program(int(rows), int(rate), int(batch), out)
    pipeline = penstock.Pipeline("steady", program=text, storage=storage, config={"workers": int(workers)})
    pipeline.start()
    print(json.dumps({"state": pipeline.state, "last": pipeline.stats()["transactions"]}), flush=True)
    pipeline.wait()
    found = pipeline.query("SELECT * FROM sums ORDER BY g").to_pylist()
    print(json.dumps({"sums": found, "last": pipeline.stats()["transactions"]}), flush=True)
    pipeline.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
