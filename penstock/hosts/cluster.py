"""A pipeline's run on several hosts: a Spark master in this process, the hosts that join, their batches."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.session import application_on, static_settings
from penstock.errors import StateError
from penstock.hosts.config import ClusterConfig
from penstock.hosts.coordinator import Coordinator
from penstock.hosts.files import HostFiles
from penstock.hosts.messages import LOST_SECONDS
from penstock.hosts.parts import HostParts
from penstock.plan.catalyst.master import Master, executors
from penstock.sync.config import SyncConfig
from penstock.sync.parts import Parts

_LOOK_SECONDS = 0.2

_OWN: Mapping[str, str] = {
    "spark.authenticate": "true",
    # The pages of the master and the workers cannot be switched off: at least nothing can be ended there.
    "spark.ui.killEnabled": "false",
}
"""Of a cluster that the coordinator and its hosts are themselves."""

_SETTINGS: Mapping[str, str] = {
    "spark.executor.memory": "1g",
    # A host that was cut off is found out in less than a minute, and what it had to do is done elsewhere.
    "spark.network.timeout": "40s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
    # Where little comes from says nothing of where it should go: that is said by its place.
    "spark.shuffle.reduceLocality.enabled": "false",
    # Executors come back with their hosts, however often.
    "spark.deploy.maxExecutorRetries": "-1",
}

_SUMMED = ("processed_records", "batches", "rows", "bytes")
"""What the pipeline knows of each host, and of all together."""


class Cluster:
    """From the start of a pipeline to its end."""

    def __init__(self, config: ClusterConfig, directory: Path, pipeline: str, workers: int) -> None:
        """`directory`: the pipeline's storage; `pipeline`: its id; `workers`: tasks at once on each host."""
        self._config = config
        self._directory = directory
        self._workers = workers
        self.coordinator = Coordinator(
            directory, pipeline, config.hosts, workers, config.address, config.port
        )
        self.waits = ""
        """For which hosts, while it does."""
        self._stopped = False
        self._master: Master | None = None
        self.files: HostFiles | None = None
        self._spark: SparkSession | None = None

    @property
    def waits_for(self) -> str | None:
        """Which hosts are not there, and why."""
        silent = "" if self.files is None else str(self.files.waits)
        return self.waits or "; ".join(self.coordinator.lost().values()) or silent or None

    @property
    def workers(self) -> int:
        """Of all hosts together."""
        return self._workers * self._config.hosts

    def open(self, settings: Mapping[str, str]) -> HostFiles:
        """Wait for all hosts, and start the application on them; `StateError` if it is stopped."""
        own, there = self._config.address, self._config.master
        secret = {} if there else {"spark.authenticate.secret": self.coordinator.spark_secret}
        whole = {
            **static_settings(),
            **_SETTINGS,
            **({} if there else _OWN),
            "spark.driver.bindAddress": own,
            "spark.driver.host": own,
            "spark.executor.cores": str(self._workers),
            "spark.cores.max": str(self.workers),
            **settings,
        }
        os.environ.setdefault("SPARK_LOCAL_IP", own)  # or the master's page listens everywhere
        if there is None:
            self._master = Master(own, whole, secret)
            there = self._master.url
        self.coordinator.open(there)
        self._wait()
        self._spark = application_on(there, {**whole, **secret})
        self._wait_for_executors(self._spark)
        self.files = HostFiles(self._directory / "batches", self.coordinator, lambda: self._stopped)
        return self.files

    def parts(self, config: SyncConfig, standing_by: Callable[[], bool]) -> Parts:
        """How the hosts copy checkpoints to an object store, and from there."""
        assert self.files is not None, "it is open"
        return HostParts(self.coordinator, config, self.files.wait, standing_by)

    @property
    def spark(self) -> SparkSession:
        """The session of the application, when it is open."""
        assert self._spark is not None, "it is open"
        return self._spark

    def _wait(self) -> None:
        def say(text: str) -> None:
            self.waits = text

        try:
            self.coordinator.wait(lambda: self._stopped, say)
        finally:
            self.waits = ""
        self._refuse_stopped()

    def _wait_for_executors(self, spark: SparkSession) -> None:
        """Until Spark runs on every host."""
        try:
            while (there := executors(spark)) < self._config.hosts:
                self.waits = (
                    f"Spark runs on {there} of {self._config.hosts} hosts so far. If this lasts: does"
                    " spark.executor.memory fit into --memory of each host? Can the hosts reach this machine"
                    f" at {self._config.address}, on any port?"
                )
                self._refuse_stopped()
                time.sleep(_LOOK_SECONDS)
        finally:
            self.waits = ""

    def _refuse_stopped(self) -> None:
        if self._stopped:
            raise StateError("the pipeline was stopped while it waited for its hosts")

    def end_without_lost_hosts(self) -> None:
        """The pipeline is to end in order: what waits for a host that is lost, or that is silent for as long
        though it gives signs of life, is given up."""

        def watch() -> None:
            while not self._stopped:
                silent = self.files is not None and self.files.waits.seconds >= LOST_SECONDS
                if silent or self.coordinator.lost():
                    self.interrupt()
                time.sleep(_LOOK_SECONDS)

        threading.Thread(target=watch, name="penstock ending", daemon=True).start()

    def interrupt(self) -> None:
        """Let what waits for hosts fail soon, Spark's jobs too."""
        self._stopped = True
        if self._spark is not None:
            self._spark.sparkContext.cancelAllJobs()

    def stats(self, shares: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """As plain JSON; `shares` is what the pipeline knows of each host."""
        found = self.coordinator.stats()
        for host, share in zip(found["hosts"], shares, strict=False):
            host.update(share, reads={})
        together: Counter[str] = Counter()
        for (index, how), times in ({} if self.files is None else dict(self.files.reads)).items():
            found["hosts"][index].setdefault("reads", {})[how] = times
            together[how] += times
        sums = {what: sum(share[what] for share in shares) for what in _SUMMED} if shares else {}
        return {**found, **sums, "waits_for": self.waits_for, "reads": dict(together)}

    def close(self) -> None:
        self._stopped = True
        try:
            if self._spark is not None:
                self._spark.stop()
        finally:
            if self.files is not None:
                self.files.close()
            self.coordinator.close()
            if self._master is not None:
                self._master.close()
