"""The life of a pipeline in a service, with the `feldera` client: see service.md beside this file.

python docs/tutorial/whole_life.py [http://127.0.0.1:8080]
"""

from __future__ import annotations

import os
import signal
import sys
import time

import pandas as pd
from feldera import FelderaClient, Pipeline, PipelineBuilder
from feldera.enums import BootstrapPolicy, FaultToleranceModel, PipelineStatus
from feldera.runtime_config import RuntimeConfig

SQL = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount DECIMAL(8, 2), placed TIMESTAMP);
CREATE MATERIALIZED VIEW by_region AS
SELECT region, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY region;
"""

LARGE = """
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount >= 100;
"""


def told(text: str, *values: object) -> None:
    print(f"{text:<44}", *values, flush=True)


def regions(pipeline: Pipeline) -> list[tuple[str, int, str]]:
    rows = pipeline.query("SELECT * FROM by_region ORDER BY region")
    return [(row["region"], row["orders"], str(row["amount"])) for row in rows]


def process_of(pipeline: Pipeline) -> int:
    found = pipeline.client.http.get(path=f"/pipelines/{pipeline.name}")
    return int((found["deployment_resources_status_details"] or {}).get("pid", 0))


def main(url: str) -> None:
    client = FelderaClient(url)

    # Create: the program is compiled, and an error in it would be shown with its place.
    config = RuntimeConfig(workers=2, fault_tolerance_model=FaultToleranceModel.ExactlyOnce)
    pipeline = PipelineBuilder(client, "shop", SQL, runtime_config=config).create_or_replace()
    began = time.monotonic()
    pipeline.start()
    told("started", f"{time.monotonic() - began:.1f} s")

    # Listen from now on, ingest as JSON and as a data frame, query.
    changes = pipeline.listen("by_region")
    order = {"id": 1, "region": "north", "amount": 10, "placed": "2024-05-01 10:00:00"}
    pipeline.input_json("orders", [order])
    frame = pd.DataFrame(
        {
            "id": [2, 3],
            "region": ["south", "north"],
            "amount": [20.5, 5.0],
            "placed": pd.Timestamp("2024-05-02"),
        }
    )
    token = pipeline.input_pandas("orders", frame)
    told("by region", regions(pipeline))
    assert regions(pipeline) == [("north", 2, "15.00"), ("south", 1, "20.50")]
    changes.wait_for_token(token)
    heard = changes.to_dict()
    told("changes heard", len(heard))
    assert {"region": "south", "orders": 1, "amount": 20.5, "insert_delete": 1} in [
        {**change, "amount": float(change["amount"])} for change in heard
    ]

    # A transaction takes effect as a whole, or not at all.
    number = pipeline.start_transaction()
    pipeline.input_json("orders", {"id": 4, "region": "east", "amount": 400}, wait=False)
    assert len(regions(pipeline)) == 2
    pipeline.commit_transaction(number)
    told("after the transaction", regions(pipeline))
    assert regions(pipeline)[0] == ("east", 1, "400.00")
    pipeline.start_transaction()
    pipeline.input_json("orders", {"id": 5, "region": "west", "amount": 500}, wait=False)
    client.http.post(path="/pipelines/shop/rollback_transaction")
    told("after the roll-back", regions(pipeline))
    assert len(regions(pipeline)) == 3

    # A checkpoint, more rows after it, and the process is killed: it is started again and has everything.
    pipeline.checkpoint(wait=True)
    pipeline.input_json("orders", {"id": 6, "region": "west", "amount": 60})
    before = regions(pipeline)
    process = process_of(pipeline)
    began = time.monotonic()
    os.kill(process, signal.SIGKILL)
    while process_of(pipeline) in (0, process) or pipeline.status() != PipelineStatus.RUNNING:
        time.sleep(0.1)
    told("killed, and running again after", f"{time.monotonic() - began:.1f} s")
    assert regions(pipeline) == before

    # Another program: what is new is filled, once someone has approved of it.
    pipeline.stop(force=False)
    pipeline.modify(sql=SQL + LARGE)
    pipeline.start(bootstrap_policy=BootstrapPolicy.AWAIT_APPROVAL, wait=False)
    pipeline.wait_for_status(PipelineStatus.AWAITINGAPPROVAL)
    approval = pipeline.deployment_runtime_status_details()["approval_diff"]
    told("the new program adds", approval["program_diff"]["added_views"])
    pipeline.approve()
    pipeline.wait_for_status(PipelineStatus.RUNNING)
    told("large orders", list(pipeline.query("SELECT * FROM large")))
    assert [row["id"] for row in pipeline.query("SELECT id FROM large")] == [4]
    assert regions(pipeline) == before

    # Pause, resume, stop by force, start again: nothing is lost.
    pipeline.pause()
    pipeline.resume()
    pipeline.stop(force=True)
    pipeline.start()
    assert regions(pipeline) == before
    pipeline.stop(force=False)
    pipeline.clear_storage()
    pipeline.delete()
    told("gone", [found.name for found in client.pipelines()])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080")
