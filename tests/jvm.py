"""A JVM that outlives the pipelines which a test kills: a start and getting warm are most of a short life.

What is killed is the process that has all but Spark: journal, transactions, outputs. What it left running in
the JVM is ended before the next life, as its own JVM would have ended with it. Tests that are about that kill
pipelines with JVMs of their own (tests/test_crash.py, tests/service/test_kills.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from penstock.engine.archive import using_archive


@dataclass(frozen=True)
class Jvm:
    """A JVM in which one pipeline after another has its Spark application."""

    gateway: Any

    @property
    def environment(self) -> Mapping[str, str]:
        """What makes PySpark use it instead of starting one."""
        parameters = self.gateway.java_parameters
        return {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def end_application(self) -> None:
        """End what a pipeline that was killed left running."""
        contexts = getattr(getattr(self.gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$")
        active = contexts.getActive()
        if active.isDefined():
            active.get().stop()


@contextmanager
def kept_jvm() -> Iterator[Jvm]:
    """A JVM until the end of the block."""
    conf = SparkConf(loadDefaults=False)
    conf.setAll([("spark.driver.memory", "2g"), *using_archive().items()])
    gateway = launch_gateway(conf)
    try:
        yield Jvm(gateway)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
