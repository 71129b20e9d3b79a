"""Spark Structured Streaming at its best.

It cannot retract a row, so it is given what it could not find by itself: old and new rows with a sign,
prepared before the clock starts. What is left is a static join and a running sum, with checkpointed state.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks.system import Run
from benchmarks.systems.spark_session import open_session, to_answer
from benchmarks.workload import Answer, Transaction

SCHEMA = "o_id BIGINT, c_id BIGINT, status STRING, amount DECIMAL(12,2), sign INT"
VIEW = """SELECT region, status, sum(weight) AS orders, sum(weight * amount) AS total
FROM (SELECT c_id, status, amount, coalesce(sign, 1) AS weight FROM changes) JOIN customers USING (c_id)
GROUP BY region, status"""

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}


class SparkStreaming:
    """The `System` of a streaming query with a file source."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.source = run.place("source")
        self.staging = run.place("staging")
        self.result: Answer = {}

    def start(self) -> None:
        self.spark = open_session(self.run.directory, SETTINGS)

    def load(self) -> None:
        customers = self.spark.read.parquet(str(self.run.workload.customers)).cache()
        customers.createOrReplaceTempView("customers")
        for part in self.run.workload.orders.iterdir():  # without the column sign: each row counts as one
            os.link(part, self.source / part.name)
        changes = self.spark.readStream.schema(SCHEMA).parquet(str(self.source))
        changes.createOrReplaceTempView("changes")
        writer = self.spark.sql(VIEW).writeStream.outputMode("update").foreachBatch(self._deliver)
        self.query = writer.option("checkpointLocation", str(self.run.place("checkpoint"))).start()
        self.query.processAllAvailable()

    def prepare(self, transaction: Transaction) -> None:
        pq.write_table(transaction.signed, self._staged(transaction))

    def apply(self, transaction: Transaction) -> None:
        staged = self._staged(transaction)
        staged.rename(self.source / staged.name)
        self.query.processAllAvailable()

    def answer(self) -> Answer:
        return {group: values for group, values in self.result.items() if values[0]}

    def stop(self) -> None:
        if hasattr(self, "query"):
            self.query.stop()
        if hasattr(self, "spark"):
            self.spark.stop()

    def _staged(self, transaction: Transaction) -> Path:
        return self.staging / f"signed-{transaction.number:04d}.parquet"

    def _deliver(self, groups: DataFrame, batch: int) -> None:
        self.result.update(to_answer(groups.collect()))
