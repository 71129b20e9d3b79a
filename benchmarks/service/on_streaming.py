"""Structured Streaming's part: `python -m benchmarks.service.on_streaming ROWS BULK DIRECTORY`.

The same JSON lines into the same aggregate. It has no port for clients: they put files into a directory, and
rows are never updated.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.events import say
from benchmarks.service.rows import bodies
from benchmarks.systems.spark_session import open_session
from benchmarks.systems.spark_streaming import SETTINGS

BODY_LINES = 20_000
UNCOUNTED = 5


def main(rows: int, bulk: int, directory: Path) -> None:
    source = directory / "source"
    source.mkdir(parents=True)
    spark = open_session(directory, SETTINGS)
    changed = threading.Condition()
    seen = 0

    def deliver(groups: DataFrame, _batch: int) -> None:
        nonlocal seen
        total = sum(row["n"] for row in groups.collect())
        with changed:
            seen = total
            changed.notify_all()

    events = spark.readStream.schema("id BIGINT, kind INT, amount BIGINT").json(str(source))
    view = events.groupBy("kind").agg({"*": "count", "amount": "sum"}).withColumnRenamed("count(1)", "n")
    writer = view.writeStream.outputMode("complete").foreachBatch(deliver)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()

    def put(body: bytes, number: int) -> None:
        file = directory / f"{number}.json"
        file.write_bytes(body)
        os.rename(file, source / file.name)

    def wait(count: int) -> None:
        with changed:
            while seen < count:
                changed.wait(1)
                if query.exception() is not None:
                    raise query.exception()

    times = []
    for number in range(rows + UNCOUNTED):
        began = time.monotonic()
        put(next(bodies(number, 1, 1)), number)
        wait(number + 1)
        times.append(time.monotonic() - began)
    count = rows + UNCOUNTED
    began = time.monotonic()
    for number, body in enumerate(bodies(count, bulk, BODY_LINES), count):
        put(body, number)
    wait(count + bulk)
    say("answer", one_row=times[UNCOUNTED:], bulk=bulk / (time.monotonic() - began))
    time.sleep(3_600)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
