"""Where a transaction's input enters the circuit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors import Split, read_split
from penstock.trace.task import Stage, Task

# A row's place in its transaction: the number of its split, then its number in the split.
_ROW_BITS = 40


@dataclass(frozen=True)
class InputStage(Stage):
    """Read this task's share of a table's splits: the columns, `_op` and `_seq`, the order of arrival."""

    table: str
    schema: pa.Schema
    defaults: Mapping[str, Any] = field(hash=False)
    tasks: int

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = next(batches).column(0)[0].as_py()
        splits = task.inputs.get(self.table, [])
        first, last = (len(splits) * n // self.tasks for n in (number, number + 1))
        total = 0
        for position in range(first, last):
            rows = 0
            for batch in read_split(Split(**splits[position]), self.schema, self.defaults):
                start = (position << _ROW_BITS) + rows
                order = pa.array(np.arange(start, start + batch.num_rows))
                yield pa.RecordBatch.from_arrays(
                    [*batch.columns, order], names=[f"x{i}" for i in range(batch.num_columns + 1)]
                )
                rows += batch.num_rows
            total += rows
        task.tell(("input", self.table, str(number)), total)
