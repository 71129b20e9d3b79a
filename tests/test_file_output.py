"""file_output and print: changes with their kind, weight and transaction."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rich
from pyspark.sql.pandas.types import to_arrow_schema
from rich.console import Console

from penstock.connectors import Output, create_input, create_output, read_split
from penstock.errors import ConnectorError
from penstock.sql import Connector, View, parse_program

TABLE = """CREATE TABLE t (
  id INT, name STRING, price DECIMAL(8, 2), at TIMESTAMP, tags ARRAY<INT>, raw BINARY, f DOUBLE
);"""
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": 'a,"b"\nc',
        "price": Decimal("1.50"),
        "at": dt.datetime(2024, 1, 2, 3, 4, 5, 600, dt.UTC),
        "tags": [1, None],
        "raw": b"\xff",
        "f": float("inf"),
    },
    {"id": 2, "name": "", "price": None, "at": None, "tags": None, "raw": None, "f": 0.1},
    {"id": None, "name": None, "price": None, "at": None, "tags": [], "raw": b"", "f": None},
]


def view() -> View:
    return parse_program(TABLE + "CREATE VIEW v AS SELECT * FROM t").views[0]


def changes(rows: list[dict[str, Any]], kind: str = "insert", weight: int = 1) -> pa.Table:
    schema = to_arrow_schema(parse_program(TABLE).tables[0].schema, timezone="UTC")
    table = pa.Table.from_pylist(rows, schema)
    table = table.append_column("_change_type", pa.array([kind] * len(rows), pa.string()))
    return table.append_column("_weight", pa.array([weight] * len(rows), pa.int64()))


def output(config: dict[str, Any], form: dict[str, Any] | None = None, name: str = "file_output") -> Output:
    entry: dict[str, Any] = {"transport": {"name": name, "config": config}}
    if form is not None:
        entry["format"] = form
    return create_output(Connector("out", entry), view())


def write(path: Path, form: dict[str, Any] | None = None) -> list[str]:
    sink = output({"path": str(path)}, form)
    sink.write(3, changes(ROWS))
    sink.write(5, changes(ROWS[1:2], "delete", 2))
    flushed = path.read_text()
    sink.close()
    assert path.read_text() == flushed
    return flushed.splitlines()


def test_json_lines(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in write(tmp_path / "deep" / "out.json")]
    assert rows[0] == {
        "id": 1,
        "name": 'a,"b"\nc',
        "price": "1.50",
        "at": "2024-01-02T03:04:05.000600Z",
        "tags": [1, None],
        "raw": "/w==",
        "f": "Infinity",
        "_change_type": "insert",
        "_weight": 1,
        "_transaction": 3,
    }
    assert (rows[3]["_change_type"], rows[3]["_weight"], rows[3]["_transaction"]) == ("delete", 2, 5)


def test_csv(tmp_path: Path) -> None:
    lines = write(tmp_path / "out.csv")
    assert lines[0] == "id,name,price,at,tags,raw,f,_change_type,_weight,_transaction"
    assert lines[1:3] == [
        '1,"a,""b""',
        'c",1.50,2024-01-02T03:04:05.000600Z,"[1, null]",/w==,Infinity,insert,1,3',
    ]
    assert lines[3:] == ['2,"",,,,,0.1,insert,1,3', ',,,,[],"",,insert,1,3', '2,"",,,,,0.1,delete,2,5']


@pytest.mark.parametrize("form", ["csv", "json"])
def test_what_was_written_is_read_back(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"out.{form}"
    write(path)
    table = parse_program(TABLE).tables[0]
    entry: dict[str, Any] = {"transport": {"name": "file_input", "config": {"path": str(path)}}}
    if form == "csv":
        entry["format"] = {"name": "csv", "config": {"headers": True}}
    schema = to_arrow_schema(table.schema, timezone="UTC")
    splits = create_input(Connector("in", entry), table).poll(100)
    rows = [row for split in splits for batch in read_split(split, schema) for row in batch.to_pylist()]
    assert [{k: v for k, v in row.items() if k != "_op"} for row in rows] == [*ROWS, ROWS[1]]


def test_each_run_writes_the_file_anew(tmp_path: Path) -> None:
    assert write(tmp_path / "out.json") == write(tmp_path / "out.json")


@pytest.mark.parametrize(
    ("config", "form", "said"),
    [
        ({}, None, "the field 'path' is missing"),
        ({"path": "x", "mode": "append"}, None, "unknown field 'mode'"),
        ({"path": "x"}, {"name": "parquet"}, "format.name: expected one of csv, json, found 'parquet'"),
        ({"path": "x"}, {"name": "csv", "config": {"delimiter": ""}}, "expected one character"),
        ({"path": "/dev/null/x"}, None, "cannot write /dev/null/x"),
    ],
)
def test_wrong_configuration_is_named(config: dict[str, Any], form: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(ConnectorError, match="connector out") as caught:
        output(config, form)
    assert said in str(caught.value)


def test_print_shows_changes_and_cuts_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=150, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    monkeypatch.setattr(rich, "_console", console)
    sink = output({"max_rows": 2}, name="print")
    sink.write(7, changes([*ROWS, *ROWS], "delete", 2))
    sink.close()
    text = console.export_text()
    console.file.close()
    assert "v, transaction 7" in text
    assert "-2" in text
    assert "NULL" in text
    assert "and 4 more rows" in text
