"""Spark is started before the rest of this process is imported: both take seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.engine.session import application

CONFINED: Mapping[str, str] = {
    # SELECT * FROM csv.`/etc/passwd` reads any file that this process may read.
    "spark.sql.runSQLOnFiles": "false",
    # '${env:NAME}' in a query is the environment of this process.
    "spark.sql.variable.substitute": "false",
}


class Boot:
    """A Spark that is on its way up, in a thread of its own."""

    def __init__(self, workers: int, settings: Mapping[str, str]) -> None:
        self.workers = workers
        self._settings = {**settings, **CONFINED}
        self._session: SparkSession | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._start, name="penstock boot", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._session = application(self.workers, self._settings)
        except Exception as error:
            self._error = error

    def wait(self) -> SparkSession:
        """The session; raises why it cannot be had."""
        self._thread.join()
        if self._session is None:
            raise self._error or RuntimeError("Spark could not be started")
        return self._session
