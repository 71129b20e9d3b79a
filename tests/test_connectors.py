"""Readers and the registry."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors import Split, arrow_splits, read_split
from penstock.errors import ConnectorError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def written(path: Path, rows: int, batch_rows: int) -> str:
    table = pa.table({"_op": pa.array([1] * rows, pa.int8()), "id": list(range(rows)), "name": ["n"] * rows})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return str(path)


@pytest.mark.parametrize(("batch_rows", "split_rows"), [(10, 7), (7, 10), (100, 100), (1000, 3), (1, 50)])
def test_arrow_splits_give_every_row_once(tmp_path: Path, batch_rows: int, split_rows: int) -> None:
    path = written(tmp_path / "rows.arrow", 100, batch_rows)
    splits = arrow_splits(path, 100, split_rows=split_rows)
    ids = []
    for split in splits:
        batches = list(read_split(split, SCHEMA))
        assert all(batch.schema.names == ["id", "name", "_op"] for batch in batches)
        found = [value for batch in batches for value in batch["id"].to_pylist()]
        assert len(found) == split.rows
        ids.extend(found)
    assert ids == list(range(100))
    assert arrow_splits(path, 0) == []


def test_arrow_batches_are_bounded(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.arrow", 150_000, 150_000)
    split = Split("arrow", {"path": path, "start": 0, "rows": 150_000})
    assert [batch.num_rows for batch in read_split(split, SCHEMA)] == [65_536, 65_536, 18_928]


def test_arrow_file_that_is_missing_or_short_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.arrow", 10, 10)
    with pytest.raises(ConnectorError, match=r"rows\.arrow has 10 rows, and rows 5 to 25 were expected"):
        list(read_split(Split("arrow", {"path": path, "start": 5, "rows": 20}), SCHEMA))
    with pytest.raises(ConnectorError, match="cannot read rows 0 to 1"):
        list(read_split(Split("arrow", {"path": str(tmp_path / "none"), "start": 0, "rows": 1}), SCHEMA))


def test_unknown_reader_is_named() -> None:
    known = "arrow, arrow_stream, arrow_served, inline, file, url, s3, delta, kafka, datagen"
    with pytest.raises(ConnectorError, match=f"no reader 'nats'; known: {known}"):
        read_split(Split("nats", {}), SCHEMA)
