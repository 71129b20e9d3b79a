"""Parquet: columns are found by name, and converted by the same rules as Arrow tables given to insert."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.columns import cast_column
from penstock.connectors.config import Section
from penstock.connectors.formats.record import Rejections, Target, assemble, check_not_null
from penstock.connectors.formats.salvage import Salvaged, salvage
from penstock.connectors.interface import INSERT, MAX_BATCH_ROWS

NAME = "parquet"


def parquet_settings(section: Section) -> dict[str, Any]:
    section.only([])
    return {"name": NAME}


def row_group_sizes(file: BinaryIO) -> list[int]:
    """Rows of each row group; raises an Arrow error or `OSError` if the file is not (yet) Parquet."""
    metadata = pq.read_metadata(file)
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def read_parquet(
    file: BinaryIO, groups: Sequence[int], target: Target, rejections: Rejections
) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups of the file."""
    row = 0
    with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
        found = {name.lower(): name for name in parquet.schema_arrow.names}
        spelled = {f.name: found[f.name.lower()] for f in target.schema if f.name.lower() in found}
        columns = list(spelled.values()) or parquet.schema_arrow.names[:1]
        for read in parquet.iter_batches(
            MAX_BATCH_ROWS, row_groups=list(groups), columns=columns, use_threads=False
        ):
            batch, reasons = assemble(target, INSERT, partial(_column, read, spelled, target))
            for bad in sorted(reasons):
                rejections(row + bad, reasons[bad], _shown(read, bad))
            row += read.num_rows
            if batch.num_rows:
                yield batch


def _column(batch: pa.RecordBatch, spelled: Mapping[str, str], target: Target, field: pa.Field) -> Salvaged:
    if field.name not in spelled:
        return target.constant(field, batch.num_rows)
    column = batch.column(spelled[field.name])
    return check_not_null(field, salvage(column, field.type, lambda part: cast_column(part, field.type)))


def _shown(batch: pa.RecordBatch, row: int) -> str:
    """The columns that the table wants of a row, as JSON."""
    return json.dumps(batch.slice(row, 1).to_pylist()[0], ensure_ascii=False, default=str)
