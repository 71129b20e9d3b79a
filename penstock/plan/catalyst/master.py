"""A master of Spark's standalone cluster in the driver's own JVM: it comes and goes with the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession


class Master:
    """Listens on a free port."""

    def __init__(self, address: str, settings: Mapping[str, str], secret: Mapping[str, str]) -> None:
        """Starts the JVM too, with these settings of the application to come; what is `secret` is not on its
        command line, which everybody can read."""
        conf = SparkConf(loadDefaults=True)
        conf.setAll(list(settings.items()))
        SparkContext._ensure_initialized(conf=conf)
        java: Any = SparkContext._jvm
        configured = java.org.apache.spark.SparkConf(False)
        for key, value in {**settings, **secret}.items():
            configured.set(key, value)
        masters = getattr(getattr(java.org.apache.spark.deploy.master, "Master$"), "MODULE$")
        self._environment = masters.startRpcEnvAndEndpoint(address, 0, 0, configured)._1()
        self.url = f"spark://{address}:{self._environment.address().port()}"

    def close(self) -> None:
        self._environment.shutdown()


def executors(spark: SparkSession) -> int:
    """How many executors have registered with the driver, which counts as one itself."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1
