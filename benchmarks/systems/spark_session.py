"""The session of the peers on Spark, with the settings that gave them their best times."""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from pathlib import Path

from pyspark.sql import Row, SparkSession

from benchmarks.system import CORES
from benchmarks.workload import Answer

HEAP = "4g"


def open_session(directory: Path, settings: dict[str, str], *, warm_up: bool = True) -> SparkSession:
    """A local session that writes only below `directory`; to warm up, it runs one query of another kind."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    common = {
        "spark.driver.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory / "spark-local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmark")
    session = builder.config(map={**common, **settings}).getOrCreate()
    if warm_up:
        session.range(1_000_000).selectExpr("id % 10 AS k").groupBy("k").count().collect()
    return session


def to_answer(rows: list[Row]) -> Answer:
    """Rows of (region, status, count, sum) as the comparable answer."""
    return {(region, status): (count, int(Decimal(total) * 100)) for region, status, count, total in rows}
