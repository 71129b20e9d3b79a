"""A pipeline from Kafka to Kafka, until it is killed or has everything.

Arguments: storage, address of the broker, topic of the input, topic for the rows, topic for the sums, topic
for the latest row of each key, how many messages there will be, most rows of a transaction.
"""

from __future__ import annotations

import json
import sys
import time

import penstock


def program(address: str, source: str, rows: str, sums: str, latest: str, batch: int) -> str:
    def read(name: str, **more: str) -> str:
        config = {"topic": source, "bootstrap.servers": address, **more}
        transport = {"name": "kafka_input", "config": config}
        return json.dumps(
            [{"name": name, "max_batch_size": batch, "transport": transport, "format": {"name": "json"}}]
        )

    def written(name: str, topic: str, **more: object) -> str:
        transport = {"name": "kafka_output", "config": {"topic": topic, "bootstrap.servers": address}}
        return json.dumps(
            [{"name": name, "transport": transport, "format": {"name": "json", "config": more}}]
        )

    return f"""
    CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, n BIGINT) WITH ('connectors' = '{read("read")}');
    CREATE TABLE keyed (id BIGINT PRIMARY KEY, n BIGINT) WITH (
        'connectors' = '{read("follow", envelope="upsert")}');
    CREATE VIEW everything WITH ('connectors' = '{written("rows", rows)}') AS SELECT id, g, n FROM t;
    CREATE VIEW sums WITH ('connectors' = '{written("sums", sums)}') AS
        SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
    CREATE VIEW latest WITH (
        'connectors' = '{written("latest", latest, update_format="raw", unique_keys=["id"])}') AS
        SELECT id, n FROM keyed;
    """


def main(storage: str, address: str, *arguments: str) -> None:
    *topics, messages, batch = arguments
    config = {
        "workers": 2,
        "max_transaction_rows": int(batch),
        "fault_tolerance": {"checkpoint_interval_secs": 2},
    }
    text = program(address, *topics, batch=int(batch))
    pipeline = penstock.Pipeline("kafka", program=text, storage=storage, config=config)
    pipeline.start()
    print(json.dumps({"last": pipeline.stats()["transactions"]}), flush=True)
    while not done(pipeline, int(messages)):
        time.sleep(0.1)
    print(json.dumps({"last": pipeline.stats()["transactions"]}), flush=True)
    pipeline.stop()


def done(pipeline: penstock.Pipeline, messages: int) -> bool:
    """Whether everything was read, and the outputs have what follows from it."""
    stats = pipeline.stats()
    failed = {name: c["last_error"] for name, c in stats["inputs"].items() if c["status"] == "failed"}
    failed |= {name: c["last_error"] for name, c in stats["outputs"].items() if c["status"] == "failed"}
    assert not failed, failed
    assert stats["error"] is None or stats["state"] == "Running", stats["error"]
    read = [sum(p["next"] for p in found["partitions"].values()) for found in stats["inputs"].values()]
    behind = sum(found["behind"] for found in stats["outputs"].values())
    idle = not stats["queued_rows"] and stats["transaction"] is None
    return all(count == messages for count in read) and idle and not behind


if __name__ == "__main__":
    main(*sys.argv[1:])
