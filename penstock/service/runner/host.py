"""What a runner process has: Spark, as soon as it is up, and the pipeline, once it is told which."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import StateError
from penstock.pipeline import Pipeline
from penstock.service.errors import ApiError, error_body
from penstock.service.runner.boot import Boot
from penstock.service.runner.confinement import confine
from penstock.service.runner.deployment import Deployment, Order
from penstock.service.runner.history import History
from penstock.service.runner.rehearsal import rehearse
from penstock.service.runner.statistics import resident_bytes
from penstock.service.runner.tokens import Tokens

JVM_LOST = 70
"""The exit code of a runner whose JVM is gone."""

_log = logging.getLogger("penstock")


class Host:
    """Blank at first. `ended` is set when the process has nothing left to do."""

    def __init__(
        self,
        directory: Path,
        boot: Boot | None,
        roots: Sequence[str] | None = None,
    ) -> None:
        """Without `boot` Spark comes with the hosts of the pipeline."""
        self._directory = directory
        self._boot = boot
        self.roots = roots
        """Where connectors may read and write files; None if anywhere."""
        self.deployment: Deployment | None = None
        self.ended = threading.Event()
        self.failure: dict[str, Any] | None = None
        """Why it could not end in order."""
        self._spark = threading.Event()
        self._rehearsed = False
        self._lock = threading.Lock()
        self._tokens: Tokens | None = None
        self._stopping = False
        self.history = History(self._sample)

    def keep_history(self) -> None:
        """Take samples until the end."""
        self.history.run(self.ended)

    def _sample(self) -> tuple[int, int, int] | None:
        """Records processed, memory and storage, while the pipeline is running."""
        if self.deployment is None or self.deployment.status not in ("Running", "Paused"):
            return None
        stats = self.deployment.pipeline.stats()
        rows = sum(table["rows_in"] for table in stats.get("tables", {}).values())
        return rows, resident_bytes(), sum(trace["bytes"] for trace in stats.get("traces", {}).values())

    def warm(self) -> None:
        """Wait for Spark, and then try out what the pipeline to come will need."""
        if self._boot is None:
            return
        try:
            self._take(self._boot.wait())
            storage = self._directory / "rehearsal"
            self._rehearsed = rehearse(self._boot.workers, storage, lambda: self.deployment is None)
        except Exception as error:
            _log.exception("Spark could not be started")
            self.fail(error)

    def _take(self, spark: SparkSession) -> None:
        """Spark is up: confine whatever will run there, and end with its JVM."""
        if self._spark.is_set():
            return
        confine(spark)
        self._spark.set()
        threading.Thread(target=self._end_with_jvm, name="penstock jvm", daemon=True).start()

    def _end_with_jvm(self) -> None:
        """Without its JVM a pipeline cannot go on, nor end in order. What was confirmed is in the journal."""
        gateway = SparkContext._gateway
        process = None if gateway is None else gateway.proc
        if process is None:
            return
        code = process.wait()
        if not self.ended.is_set():
            reason = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            _log.error("the JVM of Spark %s, so this process ends too", reason)
            logging.shutdown()
            os._exit(JVM_LOST)

    @property
    def is_warm(self) -> bool:
        """Whether a start would be fast: Spark is up, and a small pipeline ran in it."""
        return self._rehearsed

    def wait_for_spark(self) -> None:
        """Two threads that start Spark at once would start it twice."""
        if self._boot is None:
            return
        while not self._spark.wait(0.1):
            if self.ended.is_set():
                raise StateError("Spark could not be started; see the log")

    def deploy(self, order: Order) -> None:
        """Run this pipeline from now on."""
        with self._lock:
            if self.deployment is not None:
                if self.deployment.order.deployment_id == order.deployment_id:
                    return  # the answer to the first request was lost
                raise StateError("this runner has a pipeline already")
            self.deployment = Deployment(order, self.roots, self._take)
            self._tokens = Tokens(self.deployment.incarnation)
        self.deployment.begin(self.wait_for_spark)

    def deployed(self) -> Deployment:
        if self.deployment is None:
            raise ApiError(503, "PipelineInteractionNotDeployed", "no pipeline was deployed here yet")
        return self.deployment

    def pipeline(self) -> Pipeline:
        """The pipeline, if it is running."""
        return self.deployed().running()

    @property
    def tokens(self) -> Tokens:
        self.deployed()
        assert self._tokens is not None
        return self._tokens

    def stop(self) -> None:
        """End in order: finish what was accepted, take a checkpoint."""
        with self._lock:
            if self._stopping:
                return  # it was told twice
            self._stopping = True
        try:
            if self.deployment is not None:
                self.deployment.stop()
            self.ended.set()
        except Exception as error:
            _log.exception("the pipeline could not be stopped in order")
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End, and leave word why."""
        code = getattr(error, "code", "INTERNAL_ERROR")
        self.failure = error_body(code, str(error), {})
        self.ended.set()
