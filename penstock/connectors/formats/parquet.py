"""Parquet: columns are found by name, and converted by the same rules as Arrow tables given to insert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.columns import cast_column
from penstock.connectors.config import Section
from penstock.connectors.formats.record import Target, check_not_null, describe
from penstock.connectors.interface import INSERT, MAX_BATCH_ROWS, with_op
from penstock.connectors.misfit import BadValueError
from penstock.errors import ConnectorError

NAME = "parquet"


def parquet_settings(section: Section) -> dict[str, Any]:
    section.only([])
    return {"name": NAME}


def row_group_sizes(path: str) -> list[int]:
    """Rows of each row group; raises an Arrow error or `OSError` if the file is not (yet) Parquet."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def read_parquet(path: str, groups: Sequence[int], target: Target) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups of the file."""
    row = 0
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        found = {name.lower(): name for name in file.schema_arrow.names}
        spelled = {f.name: found[f.name.lower()] for f in target.schema if f.name.lower() in found}
        columns = list(spelled.values()) or file.schema_arrow.names[:1]
        for batch in file.iter_batches(
            MAX_BATCH_ROWS, row_groups=list(groups), columns=columns, use_threads=False
        ):
            yield with_op(
                _converted(batch, spelled, target, f"{path}, row groups {list(groups)}", row), INSERT
            )
            row += batch.num_rows


def _converted(
    batch: pa.RecordBatch, spelled: dict[str, str], target: Target, where: str, row: int
) -> pa.RecordBatch:
    arrays = []
    for field in target.schema:
        try:
            if field.name in spelled:
                arrays.append(cast_column(batch.column(spelled[field.name]), field.type))
                check_not_null(field, arrays[-1])
            else:
                arrays.append(target.constant(field, batch.num_rows))
        except BadValueError as bad:
            raise ConnectorError(f"{where}, row {row + bad.row}: {describe(field, bad)}") from bad
    return pa.RecordBatch.from_arrays(arrays, schema=target.schema)
