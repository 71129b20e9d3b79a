"""The one Spark application of this process, and the sessions that pipelines have in it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.engine.archive import using_archive
from penstock.errors import StateError
from penstock.plan.catalyst import SETTINGS

_STATIC: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.engine.daemon",
    "spark.python.worker.reuse": "true",
    # What goes wrong in a task is raised here, with its reason: a stack trace on the console adds nothing.
    "spark.log.level": "FATAL",
    # Nobody looks at the history of jobs that run several times a second.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.sql.session.timeZone": "UTC",
}

# How a partition comes to its host, see `penstock/plan/catalyst/placing.py`.
_PLACING: Mapping[str, str] = {"spark.sql.unionOutputPartitioning": "true"}

_ALONE: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The only executor is this process. Were it stopped for two minutes, Spark would take it for dead, never
    # let it register again, and end everything soon after.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",
}

_CIRCUIT: Mapping[str, str] = {
    **SETTINGS,
    "spark.sql.session.timeZone": "UTC",
    # A compiled plan runs unchanged in every transaction: nothing may adapt it, and a broadcast would
    # keep the first transaction's rows.
    "spark.sql.adaptive.enabled": "false",
    # The views of a wave are tasks of one job, side by side.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}


def application(workers: int, settings: Mapping[str, str]) -> SparkSession:
    """The application's session: the one that is running, or a new local one."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    return _started(f"local[{workers}]", {**static_settings(), **_ALONE, **settings})


def static_settings() -> dict[str, str]:
    """What every application has, before a user's settings."""
    return {**_STATIC, "spark.driver.memory": "2g", **using_archive()}


def application_on(master: str, settings: Mapping[str, str]) -> SparkSession:
    """The session of an application on several hosts, of which this process is the driver."""
    if SparkContext._active_spark_context is not None:
        raise StateError(
            "this process runs Spark already, on this machine alone: run a pipeline on several hosts in a"
            " process of its own"
        )
    return _started(master, settings)


def _started(master: str, settings: Mapping[str, str]) -> SparkSession:
    # PySpark logs each error in a query with a stack trace beside raising it; we say it once, with its place.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("penstock").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # PySpark's own handler cancels all jobs on Ctrl-C, and with them the transaction that is running.
    handler = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return session


def circuit_session(spark: SparkSession, partitions: int, *, places: bool = False) -> SparkSession:
    """A session of its own for a circuit: names and settings do not leak. `places`: partitions are brought to
    the hosts that have their state."""
    session = spark.newSession()
    for key, value in {**_CIRCUIT, **(_PLACING if places else {})}.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session


def query_session(spark: SparkSession, partitions: int) -> SparkSession:
    """A session for ad-hoc queries, planned as Spark plans any query."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session
