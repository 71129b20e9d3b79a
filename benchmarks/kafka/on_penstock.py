"""Penstock: `kafka_input`, a view, and for single messages `kafka_output`; every setting but `workers` as it
is by default, with a storage directory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock
from benchmarks.kafka.messages import Row, row
from benchmarks.kafka.system import Answer, serve
from benchmarks.system import CORES

PROGRAM = """
CREATE TABLE events (id BIGINT, kind INT, amount BIGINT) WITH ('connectors' = '{inputs}');
CREATE VIEW totals WITH ('connectors' = '{outputs}') AS
SELECT kind, count(*) AS n, sum(amount) AS total FROM events GROUP BY kind;
"""


class Penstock:
    """The `System` of pipelines, one after another, in one Spark application."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory

    @contextmanager
    def ingested(self, topic: str, count: int) -> Iterator[list[Row]]:
        answer = Answer()
        pipeline = self._pipeline(topic)

        def take(_: int, changes: pa.Table) -> None:
            answer.update(row(found) for found in changes.to_pylist() if found["_change_type"] == "insert")

        pipeline.on_change("totals", take)
        pipeline.start()
        yield answer.wait(count, lambda: pipeline.failure)
        pipeline.stop()

    def follow(self, source: str, sink: str) -> None:
        pipeline = self._pipeline(source, sink)
        pipeline.start()
        while pipeline.failure is None:
            time.sleep(1)
        raise RuntimeError(pipeline.failure)

    def _pipeline(self, source: str, sink: str | None = None) -> penstock.Pipeline:
        inputs = self._connector("kafka_input", source, {"update_format": "raw"})
        outputs = self._connector("kafka_output", sink, {}) if sink else "[]"
        program = PROGRAM.format(inputs=inputs, outputs=outputs)
        return penstock.Pipeline(source, program, self._directory / source, {"workers": CORES})

    def _connector(self, transport: str, topic: str, form: dict[str, Any]) -> str:
        config = {"topic": topic, "bootstrap.servers": self._address}
        return json.dumps(
            [{"transport": {"name": transport, "config": config}, "format": {"name": "json", "config": form}}]
        )


if __name__ == "__main__":
    serve(Penstock)
