"""Structured Streaming's part: `... on_streaming write|restore DATA STATE ROUNDS BLOCKS sums|orders`.

It is asked for the same view in two ways, which differ in the state that it has to bring back:

- sums: the query of the main benchmark over signed rows. What it keeps is one sum for each group of the
  view, and no order: it could not take an order back that it was not told of.
- orders: every version of an order with the sum of its signs, which is what Penstock keeps of the table; each
  batch gives the whole of it to a query that joins and adds it up. It is kept in RocksDB.

It answers with a batch only, so one with the last round's transaction waits for it when it starts again.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.checkpoint.orders import Parts
from benchmarks.events import say
from benchmarks.systems.spark_session import open_session, to_answer
from benchmarks.systems.spark_streaming import SCHEMA, SETTINGS, VIEW
from benchmarks.workload import Answer, Workload

SOURCE, CHECKPOINT, LAST = "source", "checkpoint", "last.parquet"

ORDERS = """SELECT o_id, c_id, status, amount, sum(coalesce(sign, 1)) AS weight
FROM changes GROUP BY o_id, c_id, status, amount"""
VIEW_OF_ORDERS = """SELECT region, status, sum(weight) AS orders, sum(weight * amount) AS total
FROM {orders} JOIN customers USING (c_id) WHERE weight > 0 GROUP BY region, status"""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KEPT = {
    "sums": (VIEW, SETTINGS),
    "orders": (ORDERS, {**SETTINGS, "spark.sql.streaming.stateStore.providerClass": ROCKSDB}),
}


class Streaming:
    """The query, and what its last batch answered."""

    def __init__(self, spark: SparkSession, workload: Workload, state: Path, kept: str) -> None:
        self.answers: list[Answer] = []
        self._kept = kept
        spark.read.parquet(str(workload.customers)).cache().createOrReplaceTempView("customers")
        changes = spark.readStream.schema(SCHEMA).parquet(str(state / SOURCE))
        changes.createOrReplaceTempView("changes")
        # complete, so that the first batch after the restart shows the whole state
        writer = spark.sql(KEPT[kept][0]).writeStream.outputMode("complete").foreachBatch(self._deliver)
        self.query: StreamingQuery = writer.option("checkpointLocation", str(state / CHECKPOINT)).start()

    def _deliver(self, rows: DataFrame, _batch: int) -> None:
        groups = rows
        if self._kept == "orders":
            groups = rows.sparkSession.sql(VIEW_OF_ORDERS, orders=rows)
        found = to_answer(groups.collect())
        self.answers.append({group: values for group, values in found.items() if values[0]})


def write(workload: Workload, state: Path, parts: Parts, kept: str) -> None:
    """One batch with the load, and one with all rounds but the last; then wait to be killed."""
    source = state / SOURCE
    source.mkdir()
    for part in workload.orders.iterdir():  # without the column sign: each row counts as one
        os.link(part, source / part.name)
    *rounds, last = parts.in_rounds(workload)
    staged = state / "staged"
    staged.mkdir()
    for transaction in rounds:
        pq.write_table(transaction.signed, staged / f"signed-{transaction.number:04d}.parquet")
    pq.write_table(last.signed, state / LAST)
    streaming = Streaming(open_session(state, KEPT[kept][1]), workload, state, kept)
    streaming.query.processAllAvailable()
    say("loaded")
    for file in staged.iterdir():
        file.rename(source / file.name)
    streaming.query.processAllAvailable()
    expected = rounds[-1].answer if rounds else workload.loaded_answer
    say("answer", correct=streaming.answers[-1] == expected)
    time.sleep(3_600)


def restore(workload: Workload, state: Path, parts: Parts, kept: str) -> None:
    say("python")
    spark = open_session(state, KEPT[kept][1], warm_up=False)
    say("running")
    streaming = Streaming(spark, workload, state, kept)
    while not streaming.answers and streaming.query.isActive:
        time.sleep(0.01)
    say("view")
    if (failure := streaming.query.exception()) is not None:
        raise failure
    say("answer", correct=streaming.answers == [parts.in_rounds(workload)[-1].answer])


if __name__ == "__main__":
    _, what, data, place, rounds, blocks, kept = sys.argv
    function = {"write": write, "restore": restore}[what]
    function(Workload(Path(data)), Path(place), Parts(int(rounds), int(blocks)), kept)
