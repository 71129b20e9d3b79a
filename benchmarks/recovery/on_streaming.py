"""Structured Streaming's part: `python -m benchmarks.recovery.on_streaming write|restart DATA STATE`.

The same query as in the main benchmark, over signed rows. The writer commits one batch for each transaction
but the last two. It is killed within the batch of the next to last, whose offsets are recorded and which is
not committed; the last one arrives while it is down. So the restart has a batch to repeat and a new one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.events import say
from benchmarks.systems.spark_session import open_session, to_answer
from benchmarks.systems.spark_streaming import SCHEMA, SETTINGS, VIEW
from benchmarks.workload import Answer, Workload

LAST = "signed-last.parquet"


def started(
    spark: SparkSession, workload: Workload, state: Path, deliver: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """The query, one file to a batch."""
    spark.read.parquet(str(workload.customers)).cache().createOrReplaceTempView("customers")
    changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(state / "source"))
    changes.createOrReplaceTempView("changes")
    # complete, so that the first batch after the restart shows the whole state
    writer = spark.sql(VIEW).writeStream.outputMode("complete").foreachBatch(deliver)
    return writer.option("checkpointLocation", str(state / "checkpoint")).start()


def write(workload: Workload, state: Path) -> None:
    source = state / "source"
    source.mkdir()
    transactions = list(workload.transactions())
    loads = sorted(workload.orders.iterdir())
    files = [source / f"load-{number}.parquet" for number in range(len(loads))]
    for part, file in zip(loads, files, strict=True):
        os.link(part, file)
    for transaction in transactions[:-1]:
        file = source / f"signed-{transaction.number:04d}.parquet"
        pq.write_table(transaction.signed, file)
        files.append(file)
    pq.write_table(transactions[-1].signed, state / LAST)
    for age, file in enumerate(reversed(files)):  # the source takes the oldest first
        os.utime(file, (time.time() - age,) * 2)
    last = len(files) - 1

    def deliver(groups: DataFrame, batch: int) -> None:
        groups.collect()
        say("transaction", number=batch)
        if batch == last:
            say("written")
            time.sleep(3_600)

    started(open_session(state, SETTINGS), workload, state, deliver).awaitTermination()


def restart(workload: Workload, state: Path) -> None:
    found: list[Answer] = []

    def deliver(groups: DataFrame, _batch: int) -> None:
        found.append(to_answer(groups.collect()))

    spark = open_session(state, SETTINGS, warm_up=False)
    say("spark")
    started(spark, workload, state, deliver).processAllAvailable()
    say("running", transactions=len(found))
    rows = {group: values for group, values in found[-1].items() if values[0]}
    say("answer", correct=rows == workload.final_answer)


if __name__ == "__main__":
    _, what, data, state = sys.argv
    {"write": write, "restart": restart}[what](Workload(Path(data)), Path(state))
