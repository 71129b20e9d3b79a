"""Where a transaction's input enters the circuit."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from penstock.connectors import ERROR_COLUMN, MAX_BATCH_ROWS, READING, BadRecord, Split, read_split
from penstock.plan.rules.table import SPLIT_SHIFT
from penstock.storage.files import write_file
from penstock.trace.task import Stage, Task

_BATCH_BYTES = 32 << 20
"""Batches are put together up to about this size."""

_SHOWN = 5
"""How many of a split's bad records are told to the driver; the dead-letter file has them all."""


@dataclass(frozen=True)
class InputStage(Stage):
    """Read this task's share of a table's splits: the columns, `_op` and `_seq`, the order of arrival."""

    table: str
    schema: pa.Schema
    defaults: Mapping[str, Any] = field(hash=False)
    tasks: int
    keeps_errors: bool = False
    """Whether `_error` stands behind `_op`."""

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = next(batches).column(0)[0].as_py()
        splits = task.inputs.get(self.table, [])
        first, last = (len(splits) * n // self.tasks for n in (number, number + 1))
        total = 0
        waiting: list[pa.RecordBatch] = []
        rows_waiting = bytes_waiting = 0
        for batch in self._rows(task, splits, first, last):
            total += batch.num_rows
            # A batch costs milliseconds on its way through Spark, however few rows it has.
            if waiting and (
                rows_waiting + batch.num_rows > MAX_BATCH_ROWS or bytes_waiting + batch.nbytes > _BATCH_BYTES
            ):
                yield pa.concat_batches(waiting)
                waiting, rows_waiting, bytes_waiting = [], 0, 0
            waiting.append(batch)
            rows_waiting += batch.num_rows
            bytes_waiting += batch.nbytes
        if waiting:
            yield pa.concat_batches(waiting)
        task.tell(("input", self.table, str(number)), (total, task.host))

    def _rows(
        self, task: Task, splits: Sequence[Mapping[str, Any]], first: int, last: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of splits, with the order of arrival as their last column."""
        for position in range(first, last):
            rows = 0
            bad: list[BadRecord] = []
            for batch in read_split(Split(**splits[position]), self.schema, self.defaults, bad.append):
                start = (position << SPLIT_SHIFT) + rows
                order = pa.array(np.arange(start, start + batch.num_rows))
                columns = [*batch.columns, order]
                if self.keeps_errors and ERROR_COLUMN not in batch.schema.names:
                    columns.insert(-1, pa.nulls(batch.num_rows, pa.string()))
                names = [f"x{i}" for i in range(len(columns))]
                yield pa.RecordBatch.from_arrays(columns, names=names)
                rows += batch.num_rows
            if bad:
                self._keep(task, position, splits[position], bad)

    def _keep(self, task: Task, position: int, split: Mapping[str, Any], bad: list[BadRecord]) -> None:
        """Put bad records aside, under a name that stays the same when the transaction is run again."""
        owner = task.owners[self.table][position]
        connector, transaction = task.owner_names[owner]
        lines = [
            json.dumps({"transaction": transaction, "connector": connector, **asdict(record)}) + "\n"
            for record in bad
        ]
        recorded = {key: value for key, value in split["payload"].items() if key != READING}
        mark = zlib.crc32(json.dumps({**split, "payload": recorded}, sort_keys=True).encode())
        path = task.dead_letters / f"{transaction:012d}-{quote(connector, safe='')}-{mark:08x}.jsonl"
        path.parent.mkdir(exist_ok=True)
        write_file(path, lambda file: file.write("".join(lines).encode()), durable=True)
        shown = [asdict(record) for record in bad[:_SHOWN]]
        task.tell(("bad", str(owner), self.table, str(position)), (len(bad), shown))
