"""Spark's Python worker daemon with Penstock already imported.

Workers are forked from the daemon, so what it has imported costs them neither time nor memory.

Spark puts its own zip archives first on the path. A worker invalidates its import caches in every
task, which reads the directory of such an archive anew for each package that came from it: tens of
milliseconds per stage. Where PySpark is installed as ordinary files, those are used instead.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

PRELOADED = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "penstock.plan.rules",
    "penstock.engine.leaves",
)


def prefer_files() -> None:
    """Take archives off the path if what they hold is installed beside them."""
    files = [entry for entry in sys.path if not entry.endswith(".zip")]
    if all(PathFinder.find_spec(name, files) is not None for name in ("pyspark", "py4j")):
        sys.path[:] = files
        for entry in [entry for entry in sys.path_importer_cache if ".zip" in entry]:
            del sys.path_importer_cache[entry]


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker whose application is gone ends without a word: there is nobody left to read it."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return run


def main() -> None:
    """Import, then serve."""
    prefer_files()
    for name in PRELOADED:
        importlib.import_module(name)
    daemon: Any = importlib.import_module("pyspark.daemon")
    # A worker collects garbage after every task. What was imported is not garbage: leave it alone, which
    # saves tens of milliseconds per stage and keeps its pages shared.
    gc.collect()
    gc.freeze()
    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
