"""All systems by name. A module is imported only in the process and the environment that run its system."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import cast

from benchmarks.system import System


@dataclass(frozen=True)
class Entry:
    """One system: where it is, and what it is called in the table."""

    title: str
    module: str
    name: str
    durable: bool = True
    requirements: tuple[str, ...] = ()
    """Packages of its own environment; none: it runs in that of Penstock."""
    grown: bool = False
    """Also measured with four times the orders."""

    def load(self) -> type[System]:
        module = importlib.import_module(f"{__name__}.{self.module}")
        return cast("type[System]", getattr(module, self.name))

    @property
    def environment(self) -> str:
        return self.requirements[0].partition("==")[0] if self.requirements else ""


FLINK = ("apache-flink==2.3.0",)

SYSTEMS: dict[str, Entry] = {
    "penstock": Entry("Penstock, loaded by insert", "on_penstock", "Inserted", grown=True),
    "penstock-files": Entry("Penstock, loaded by file_input", "on_penstock", "FromFiles"),
    "penstock-hosts": Entry("Penstock on two hosts, loaded by insert", "on_hosts", "OnHosts"),
    "spark-recompute": Entry("Spark, full recompute", "spark_recompute", "SparkRecompute"),
    "spark-streaming": Entry("Spark Structured Streaming, signed rows", "spark_streaming", "SparkStreaming"),
    "duckdb": Entry(
        "DuckDB on file, recompute, primary key",
        "on_duckdb",
        "DuckDB",
        requirements=("duckdb==2.0.0", "pyarrow"),
    ),
    "pathway": Entry(
        "Pathway, persistence on",
        "on_pathway",
        "Pathway",
        requirements=("pathway==0.33.0", "pyarrow"),
    ),
    "flink-memory": Entry(
        "Flink SQL, upserts, in memory", "on_flink", "InMemory", durable=False, requirements=FLINK
    ),
    "flink-durable": Entry(
        "Flink SQL, signed rows, RocksDB and checkpoints",
        "on_flink",
        "Durable",
        requirements=FLINK,
        grown=True,
    ),
}

ON_SPARK = ("penstock", "penstock-files", "spark-recompute", "spark-streaming")
"""What is measured unless more is asked for."""
