"""Spark Structured Streaming: its Kafka source, an aggregate, and for single messages its Kafka sink.

The rows that change, in update mode, with a checkpoint on disk. The answer counts when it is with
`foreachBatch`, which is before the batch is entered as done.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.kafka.messages import Row
from benchmarks.kafka.system import Answer, serve
from benchmarks.systems.spark_session import open_session
from benchmarks.systems.spark_streaming import SETTINGS

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
SCHEMA = "id BIGINT, kind INT, amount BIGINT"


class Streaming:
    """The `System` of streaming queries, one after another, in one session."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory
        fetched = Path(sys.prefix) / "share" / "ivy"  # kept, as the broker is
        packages = {"spark.jars.packages": CONNECTOR, "spark.jars.ivy": str(fetched)}
        self._spark = open_session(directory, {**SETTINGS, **packages})

    @contextmanager
    def ingested(self, topic: str, count: int) -> Iterator[list[Row]]:
        answer = Answer()

        def take(groups: DataFrame, _: int) -> None:
            answer.update(tuple(row) for row in groups.collect())

        query = self._writer(self._totals(topic), topic).foreachBatch(take).start()
        yield answer.wait(count, query.exception)
        query.stop()

    def follow(self, source: str, sink: str) -> None:
        messages = self._totals(source).select(sql.to_json(sql.struct("*")).alias("value"))
        writer = self._writer(messages, source).format("kafka").option("topic", sink)
        writer.option("kafka.bootstrap.servers", self._address).start().awaitTermination()

    def _totals(self, topic: str) -> DataFrame:
        source = self._spark.readStream.format("kafka").option("subscribe", topic)
        source = source.option("kafka.bootstrap.servers", self._address).option("startingOffsets", "earliest")
        events = source.load().select(sql.from_json(sql.col("value").cast("string"), SCHEMA).alias("event"))
        kinds = events.groupBy(sql.col("event.kind").alias("kind"))
        return kinds.agg(sql.count("*").alias("n"), sql.sum("event.amount").alias("total"))

    def _writer(self, rows: DataFrame, name: str) -> DataStreamWriter:
        checkpoint = str(self._directory / name)
        return rows.writeStream.outputMode("update").option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    serve(Streaming)
