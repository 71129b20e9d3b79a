"""Delta tables in an object store: the same outputs and inputs, with credentials from the environment."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import create_input, create_output, read_split
from penstock.connectors.interface import NOTHING
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, parse_program
from tests.servers import BUCKET

PROGRAM = parse_program("CREATE TABLE t (id BIGINT, name STRING); CREATE VIEW v AS SELECT * FROM t")
SCHEMA = to_arrow_schema(PROGRAM.tables[0].schema, timezone="UTC")


@pytest.fixture
def options(s3: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "only-in-the-environment")
    return {
        "aws_endpoint_url": s3,
        "aws_region": "us-east-1",
        "aws_access_key_id": "somebody",
        "aws_secret_access_key": "${env:PENSTOCK_TEST_SECRET}",
        "allow_http": "true",
    }


def entry(transport: str, **config: Any) -> Connector:
    return Connector("c", {"transport": {"name": transport, "config": config}})


def changes(*rows: tuple[str, int, str]) -> pa.Table:
    kinds, ids, names = zip(*rows, strict=True)
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names)})
    table = table.append_column("_change_type", pa.array(kinds))
    return table.append_column("_weight", pa.array([1] * len(rows), pa.int64()))


@pytest.mark.parametrize("mode", ["append", "mirror"])
def test_what_is_written_is_read_back(options: dict[str, str], mode: str) -> None:
    uri = f"s3://{BUCKET}/{mode}"
    config = {"uri": uri, "mode": mode, **({"key_columns": ["id"]} if mode == "mirror" else {}), **options}
    sink = create_output(entry("delta_table_output", **config), PROGRAM.views[0])
    assert sink.open("p1", SCHEMA) == NOTHING
    sink.write(0, changes(("insert", 1, "a"), ("insert", 2, "b")))
    sink.write(1, changes(("delete", 1, "a"), ("insert", 1, "c")))
    assert create_output(entry("delta_table_output", **config), PROGRAM.views[0]).open("p1", SCHEMA) == 1
    reader = create_input(
        entry("delta_table_input", uri=uri, mode="snapshot_and_follow", version=1, **options),
        PROGRAM.tables[0],
    )
    splits = [*reader.poll(100), *reader.poll(100)]
    assert "only-in-the-environment" not in str(splits)
    rows = [row for split in splits for batch in read_split(split, SCHEMA) for row in batch.to_pylist()]
    total: dict[tuple[int, str], int] = {}
    for row in rows:
        total[row["id"], row["name"]] = total.get((row["id"], row["name"]), 0) + row["_op"]
    found = {row for row, count in total.items() if count}
    assert found == ({(1, "c"), (2, "b")} if mode == "mirror" else {(1, "a"), (2, "b"), (1, "c")})


def test_a_bucket_that_is_not_there_is_an_error(options: dict[str, str]) -> None:
    sink = create_output(entry("delta_table_output", uri="s3://nowhere/t", **options), PROGRAM.views[0])
    with pytest.raises(ConnectorError, match="s3://nowhere/t") as caught:
        sink.open("p1", SCHEMA)
    assert not isinstance(caught.value, UnreachableError)
