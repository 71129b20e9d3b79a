"""file_output, print, null and callbacks: changes with their kind, weight and transaction."""

from __future__ import annotations

import datetime as dt
import errno
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rich
from pyspark.sql.pandas.types import to_arrow_schema
from rich.console import Console

from penstock.connectors import Output, create_input, create_output, read_split
from penstock.connectors.interface import NOTHING
from penstock.connectors.output.callback import CallbackOutput
from penstock.errors import ConnectorError, UnreachableError
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
SCHEMA = to_arrow_schema(parse_program(TABLE).tables[0].schema, timezone="UTC")


def view() -> View:
    return parse_program(TABLE + "CREATE VIEW v AS SELECT * FROM t").views[0]


def changes(rows: list[dict[str, Any]], kind: str = "insert", weight: int = 1) -> pa.Table:
    table = pa.Table.from_pylist(rows, SCHEMA)
    table = table.append_column("_change_type", pa.array([kind] * len(rows), pa.string()))
    return table.append_column("_weight", pa.array([weight] * len(rows), pa.int64()))


def output(config: dict[str, Any], form: dict[str, Any] | None = None, name: str = "file_output") -> Output:
    entry: dict[str, Any] = {"transport": {"name": name, "config": config}}
    if form is not None:
        entry["format"] = form
    return create_output(Connector("out", entry), view())


def opened(path: Path, owner: str = "p1", form: dict[str, Any] | None = None) -> tuple[Output, int]:
    sink = output({"path": str(path)}, form)
    return sink, sink.open(owner, SCHEMA)


def write(path: Path, form: dict[str, Any] | None = None, owner: str = "p1") -> list[str]:
    sink, last = opened(path, owner, form)
    assert last == NOTHING
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


def test_another_pipeline_writes_the_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert write(path) == write(path, owner="p2")
    path.with_name(".out.json.penstock").unlink()
    assert write(path) == write(path, owner="p3")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_restart_cuts_the_file_back_to_its_last_transaction(tmp_path: Path, form: str) -> None:
    whole = write(tmp_path / f"whole.{form}")
    path = tmp_path / f"out.{form}"
    sink, _ = opened(path)
    sink.write(3, changes(ROWS))
    before = path.read_bytes()
    sink.close()
    path.write_bytes(before + b"half a row of transaction 5, which the crash inter")
    sink, last = opened(path)
    assert last == 3
    assert path.read_bytes() == before
    sink.write(5, changes(ROWS[1:2], "delete", 2))
    sink.close()
    assert path.read_text().splitlines() == whole


def test_bytes_that_the_mark_does_not_cover_are_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    sink, _ = opened(path)

    def crash(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.connectors.output.file.write_file", crash)
        with pytest.raises(UnreachableError, match="No space left"):
            sink.write(3, changes(ROWS))
    assert path.stat().st_size > 0
    sink.write(3, changes(ROWS))  # the same call again
    sink.write(3, changes(ROWS))  # a repeat of what it has
    sink.write(5, changes(ROWS[1:2], "delete", 2))
    sink.close()
    assert path.read_text().splitlines() == write(tmp_path / "whole.csv")
    sink, last = opened(path)
    sink.close()
    assert last == 5


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], r"it has \d+ bytes, and \d+ were written up to transaction 5"),
        (
            lambda data: data.replace(b"insert", b"INSERT"),
            "its first .* bytes are not those written .*CRC-32",
        ),
    ],
)
def test_a_file_that_someone_changed_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], said: str
) -> None:
    path = tmp_path / "out.json"
    write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConnectorError, match=said) as caught:
        opened(path)
    mark = path.with_name(".out.json.penstock")
    assert f"delete {mark} to have the file written anew" in str(caught.value)
    mark.write_text("{")
    with pytest.raises(ConnectorError, match="cannot be read"):
        opened(path)
    mark.unlink()
    write(path)


def test_two_outputs_do_not_share_a_file(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path / "out.json")
    with pytest.raises(ConnectorError, match="another connector or process writes"):
        opened(tmp_path / "out.json")
    sink.close()
    opened(tmp_path / "out.json")[0].close()


@pytest.mark.parametrize("path", ["/dev/null/x", "/dev/null", "/"])
def test_a_path_that_cannot_be_written_is_named(path: str) -> None:
    with pytest.raises(ConnectorError, match=f"connector out.*{path}"):
        opened(Path(path))


@pytest.mark.parametrize(
    ("config", "form", "said"),
    [
        ({}, None, "the field 'path' is missing"),
        ({"path": "x", "mode": "append"}, None, "unknown field 'mode'"),
        ({"path": "x"}, {"name": "parquet"}, "format.name: expected one of csv, json, found 'parquet'"),
        ({"path": "x"}, {"name": "csv", "config": {"delimiter": ""}}, "expected one character"),
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
    assert sink.open("p1", SCHEMA) == NOTHING
    sink.write(7, changes([*ROWS, *ROWS], "delete", 2))
    sink.close()
    text = console.export_text()
    console.file.close()
    assert "v, transaction 7" in text
    assert "-2" in text
    assert "NULL" in text
    assert "and 4 more rows" in text


def test_null_drops_everything() -> None:
    sink = output({}, name="null")
    assert not sink.remembers
    assert sink.open("p1", SCHEMA) == NOTHING
    sink.write(0, changes(ROWS))
    with pytest.raises(ConnectorError, match="unknown field 'path'"):
        output({"path": "x"}, name="null")


def test_a_function_gets_the_transaction_and_its_changes() -> None:
    got: list[tuple[int, pa.Table]] = []
    sink = CallbackOutput("mine", lambda transaction, table: got.append((transaction, table)))
    assert not sink.remembers
    assert sink.open("p1", SCHEMA) == NOTHING
    sink.write(4, changes(ROWS))
    assert got == [(4, changes(ROWS))]


@pytest.mark.parametrize("raised", [ZeroDivisionError("x"), UnreachableError("x"), ConnectorError("x")])
def test_what_a_function_raises_keeps_its_meaning(raised: Exception) -> None:
    def fail(transaction: int, table: pa.Table) -> None:
        raise raised

    expected = type(raised) if isinstance(raised, ConnectorError) else ConnectorError
    with pytest.raises(expected) as caught:
        CallbackOutput("mine", fail).write(0, changes(ROWS))
    assert type(caught.value) is expected
