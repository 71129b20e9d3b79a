"""Flink SQL in a small cluster inside one JVM, in two ways.

*In memory*: upserts arrive on a socket, the newest row of each key is kept, and nothing survives.
*Durable*: old and new rows with a sign arrive as files, state is in RocksDB, and a checkpoint is taken every
second. A transaction counts as done when its result is printed, which may be a second before it is durable.
"""

from __future__ import annotations

import os
import socket
import threading
from abc import ABC, abstractmethod
from decimal import Decimal
from pathlib import Path
from typing import IO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from pyflink.common import Configuration  # type: ignore[import-not-found, unused-ignore]
from pyflink.datastream import (  # type: ignore[import-not-found, unused-ignore]
    DataStream,
    StreamExecutionEnvironment,
)
from pyflink.table import StreamTableEnvironment  # type: ignore[import-not-found, unused-ignore]

from benchmarks.system import CORES, Run
from benchmarks.systems.follower import Follower
from benchmarks.workload import Answer, Transaction

HEAP = "4g"
NO_HEADER = csv.WriteOptions(include_header=False, quoting_style="none")
COMMON = {
    "parallelism.default": str(CORES),
    "execution.buffer-timeout.interval": "1 ms",  # the default holds small transactions back for 100 ms a hop
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "5 ms",
    "table.exec.mini-batch.size": "5000",
    "taskmanager.memory.managed.size": "512m",
    "taskmanager.numberOfTaskSlots": str(CORES),
}


class Flink(ABC):
    """What both ways share: the cluster, the customers, and the printed answer."""

    query: str

    def __init__(self, run: Run) -> None:
        self.run = run
        self.settings: dict[str, str] = {}
        self.follower = Follower()

    @abstractmethod
    def declare_changes(self) -> None:
        """Make `changes` known to SQL."""

    def start(self) -> None:
        self._write_customers()
        os.environ["JVM_ARGS"] = f"-Xmx{HEAP}"
        os.environ["FLINK_LOG_DIR"] = str(self.run.place("log"))
        with OutputPipe() as printed:
            configuration = Configuration()
            for key, value in {**COMMON, **self.settings}.items():
                configuration.set_string(key, value)
            self.environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        threading.Thread(target=self._follow, args=(printed.file,), daemon=True).start()
        self.tables = StreamTableEnvironment.create(self.environment)
        self.tables.execute_sql(
            f"""CREATE TEMPORARY TABLE customers (c_id BIGINT, region STRING)
            WITH ('connector' = 'filesystem', 'path' = 'file://{self.customers}', 'format' = 'csv')"""
        )
        self.tables.execute_sql(
            """CREATE TEMPORARY TABLE answer
            (region STRING, status STRING, orders BIGINT, total DECIMAL(38, 2))
            WITH ('connector' = 'print')"""
        )
        self.declare_changes()

    def answer(self) -> Answer:
        return dict(self.follower.answer)

    def stop(self) -> None:
        if hasattr(self, "job"):
            self.job.get_job_client().cancel().result()

    def submit(self) -> None:
        self.job = self.tables.execute_sql(f"INSERT INTO answer {self.query}")

    def _write_customers(self) -> None:
        self.customers = self.run.place("customers")
        csv.write_csv(self.run.workload.read_customers(), self.customers / "customers.csv", NO_HEADER)

    def _follow(self, printed: IO[str]) -> None:
        """Lines look like `2> +U[region-07, paid, 4012, 20123456.78]`; the 2 is the task that printed it."""
        for line in printed:
            kind, bracket, values = line.rpartition("> ")[2].partition("[")
            if not bracket or kind == "-U":  # an old value: the new one follows
                continue
            region, status, count, total = values.rstrip("]\n").split(", ")
            self.follower.put(
                (region, status), None if kind == "-D" else (int(count), int(Decimal(total) * 100))
            )


class InMemory(Flink):
    """The `System` of upserts that are kept in memory."""

    query = """SELECT region, status, count(*), sum(amount)
        FROM newest JOIN customers ON newest.c_id = customers.c_id GROUP BY region, status"""

    def declare_changes(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        java = self.environment._j_stream_execution_environment  # the Python API has no socket source
        lines = DataStream(java.socketTextStream("127.0.0.1", port, "\n"))
        self.tables.create_temporary_view("lines", self.tables.from_data_stream(lines))
        self.tables.execute_sql(
            """CREATE TEMPORARY VIEW changes AS SELECT
            CAST(SPLIT_INDEX(f0, ',', 0) AS BIGINT) AS o_id, CAST(SPLIT_INDEX(f0, ',', 1) AS BIGINT) AS c_id,
            SPLIT_INDEX(f0, ',', 2) AS status, CAST(SPLIT_INDEX(f0, ',', 3) AS DECIMAL(12, 2)) AS amount,
            PROCTIME() AS arrived FROM lines"""
        )
        self.tables.execute_sql(
            """CREATE TEMPORARY VIEW newest AS SELECT o_id, c_id, status, amount FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY o_id ORDER BY arrived DESC) AS place FROM changes
            ) WHERE place = 1 AND status <> 'gone'"""
        )

    def load(self) -> None:
        self.follower.expect(self.run.workload.loaded_answer)
        self.submit()
        self.connection, _ = self.listener.accept()
        for batch in self.run.workload.read_orders().to_batches():
            self.connection.sendall(to_csv(pa.Table.from_batches([batch])))
        self.follower.wait()

    def prepare(self, transaction: Transaction) -> None:
        keys = transaction.deletes["o_id"].cast(pa.string())
        deletes = pc.binary_join_element_wise(keys, "0", "gone", "0", ",").to_pylist()
        self.prepared = to_csv(transaction.upserts) + "".join(f"{line}\n" for line in deletes).encode()
        self.follower.expect(transaction.answer)

    def apply(self, transaction: Transaction) -> None:
        self.connection.sendall(self.prepared)
        self.follower.wait()

    def stop(self) -> None:
        super().stop()
        if hasattr(self, "connection"):
            self.connection.close()
        if hasattr(self, "listener"):
            self.listener.close()


class Durable(Flink):
    """The `System` of signed rows with RocksDB and checkpoints."""

    query = """SELECT region, status, sum(sign), sum(sign * amount)
        FROM changes JOIN customers ON changes.c_id = customers.c_id GROUP BY region, status"""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.source, self.staging = run.place("source"), run.place("staging")
        self.settings = {
            "state.backend.type": "rocksdb",
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": f"file://{run.place('checkpoints')}",
        }

    def declare_changes(self) -> None:
        orders = self.run.workload.read_orders()
        signed = orders.append_column("sign", pa.array([1] * orders.num_rows, pa.int32()))
        csv.write_csv(signed, self.staging / "load.csv", NO_HEADER)
        self.tables.execute_sql(
            f"""CREATE TEMPORARY TABLE changes
            (o_id BIGINT, c_id BIGINT, status STRING, amount DECIMAL(12, 2), sign INT)
            WITH ('connector' = 'filesystem', 'path' = 'file://{self.source}', 'format' = 'csv',
            'source.monitor-interval' = '10 ms')"""
        )

    def load(self) -> None:
        self.follower.expect(self.run.workload.loaded_answer)
        self.submit()
        self._hand_over(self.staging / "load.csv")
        self.follower.wait()

    def prepare(self, transaction: Transaction) -> None:
        csv.write_csv(transaction.signed, self._staged(transaction), NO_HEADER)
        self.follower.expect(transaction.answer)

    def apply(self, transaction: Transaction) -> None:
        self._hand_over(self._staged(transaction))
        self.follower.wait()

    def _staged(self, transaction: Transaction) -> Path:
        return self.staging / f"{transaction.number:04d}.csv"

    def _hand_over(self, path: Path) -> None:
        path.rename(self.source / path.name)


class OutputPipe:
    """Standard output as a pipe, for a process started within; what is printed can be read from `file`."""

    file: IO[str]

    def __enter__(self) -> Self:
        reading, writing = os.pipe()
        self.kept = os.dup(1)
        os.dup2(writing, 1)
        os.close(writing)
        self.file = os.fdopen(reading)
        return self

    def __exit__(self, *exception: object) -> None:
        os.dup2(self.kept, 1)
        os.close(self.kept)


def to_csv(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, NO_HEADER)
    return bytes(sink.getvalue())
