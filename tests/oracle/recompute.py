"""Spark's own answer: the query run from scratch over the current tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.oracle.cases import Case
from tests.oracle.model import Model

# Small data: one partition, and interpreted stages, because compiling code costs more than running it.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


class Recompute:
    """Evaluates cases in a session of its own, so that its tables hide nothing of the pipeline's."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)

    def load(self, model: Model) -> None:
        """Make the tables hold what the model holds."""
        for name, table in model.tables.items():
            frame = self._session.createDataFrame(table.to_arrow(), table.table.schema)
            frame.coalesce(1).createOrReplaceTempView(name)

    def results(self, model: Model, cases: Sequence[Case]) -> Iterator[pa.Table]:
        """The rows of each case over the model's tables; planned by two threads, as planning costs most."""
        self.load(model)
        for case in cases:
            self.declare(case)
        with ThreadPoolExecutor(max_workers=2) as pool:
            yield from pool.map(self.result, cases)

    def declare(self, case: Case) -> None:
        """Make the helper views of the case known."""
        for helper in case.temporary_helpers:
            self._session.sql(helper)

    def result(self, case: Case) -> pa.Table:
        """The rows of the case's query."""
        return self._session.sql(case.query).toArrow()
