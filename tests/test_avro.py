"""Avro container files: the types, in splits of whole blocks, and what is wrong with them."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Input, Split, create_input, read_split
from penstock.connectors.interface import BadRecord, Reject, refuse
from penstock.errors import ConnectorError
from penstock.sql import Connector, parse_program

SIMPLE = "CREATE TABLE t (id BIGINT NOT NULL, name STRING)"
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "ID", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
}


def open_input(path: Path, sql: str = SIMPLE, form: dict[str, Any] | None = None, **config: Any) -> Input:
    entry: dict[str, Any] = {"transport": {"name": "file_input", "config": {"path": str(path), **config}}}
    if form is not None:
        entry["format"] = {"name": "avro", "config": form}
    return create_input(Connector("in", entry), parse_program(sql).tables[0])


def drain(source: Input, max_rows: int = 1000) -> list[Split]:
    splits = []
    while not source.ended:
        splits += source.poll(max_rows)
    return splits


def read(splits: list[Split], sql: str = SIMPLE, reject: Reject = refuse) -> list[dict[str, Any]]:
    schema = to_arrow_schema(parse_program(sql).tables[0].schema, timezone="UTC")
    rows: list[dict[str, Any]] = []
    for split in splits:
        recorded = Split(**json.loads(json.dumps(vars(split))))
        for batch in read_split(recorded, schema, reject=reject):
            assert batch.schema.types[:-1] == schema.types
            rows.extend(batch.to_pylist())
    return rows


def written(path: Path, rows: list[dict[str, Any]], schema: Any = SCHEMA, **options: Any) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, **options)


def many(count: int) -> list[dict[str, Any]]:
    return [{"ID": i, "name": f"name {i}"} for i in range(count)]


def test_values_of_every_type(tmp_path: Path) -> None:
    def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": name, **more}

    types: dict[str, Any] = {
        "i": "int",
        "ok": "boolean",
        "f": "float",
        "g": ["null", "double"],
        "d": logical("bytes", "decimal", precision=8, scale=2),
        "day": logical("int", "date"),
        "at": logical("long", "timestamp-millis"),
        "precise": logical("long", "timestamp-micros"),
        "local_at": logical("long", "local-timestamp-micros"),
        "u": logical("string", "uuid"),
        "tod": logical("int", "time-millis"),
        "raw": {"type": "fixed", "name": "four", "size": 2},
        "e": {"type": "enum", "name": "color", "symbols": ["RED"]},
        "tags": {"type": "array", "items": ["null", "int"]},
        "counts": {"type": "map", "values": "long"},
        "place": {"type": "record", "name": "p", "fields": [{"name": "X", "type": "int"}]},
    }
    schema = {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in types.items()]}
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 6000, tzinfo=dt.UTC)
    row = {
        "i": 1,
        "ok": True,
        "f": 0.5,
        "g": None,
        "d": Decimal("1.25"),
        "day": dt.date(2024, 1, 2),
        "at": moment,
        "precise": moment,
        "local_at": moment.replace(tzinfo=None),
        "u": uuid.UUID(int=5),
        "tod": dt.time(1, 2, 3),
        "raw": b"\x00\xff",
        "e": "RED",
        "tags": [1, None],
        "counts": {"a": 1},
        "place": {"X": 3},
    }
    written(tmp_path / "a.avro", [row], schema)
    sql = """CREATE TABLE t (i BIGINT, ok BOOLEAN, f FLOAT, g DOUBLE, d DECIMAL(10, 3), day DATE,
             at TIMESTAMP, precise TIMESTAMP, local_at TIMESTAMP_NTZ, u STRING, tod STRING, raw BINARY,
             e STRING, tags ARRAY<INT>, counts MAP<STRING, BIGINT>, place STRUCT<x: INT>, missing STRING)"""
    expected = {
        **row,
        "d": Decimal("1.250"),
        "u": str(row["u"]),
        "tod": "01:02:03",
        "counts": [("a", 1)],
        "place": {"x": 3},
        "missing": None,
        "_op": 1,
    }
    assert read(drain(open_input(tmp_path / "a.avro", sql)), sql) == [expected]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_splits_give_every_row_once(tmp_path: Path, codec: str) -> None:
    written(tmp_path / "a.avro", many(3000), codec=codec, sync_interval=1000)
    source = open_input(tmp_path / "a.avro")
    splits = []
    while not source.ended:
        splits += source.poll(200)
        position = json.loads(json.dumps(source.position))
        source = open_input(tmp_path / "a.avro")
        source.seek(position)
    assert len(splits) > 5
    assert [row["id"] for row in read(splits)] == list(range(3000))
    assert sum(split.rows or 0 for split in splits) == 3000


def test_bad_records_and_blocks_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    rows = many(100)
    rows[70] = {"ID": None, "name": "x"}
    written(path, rows, sync_interval=1)
    data = bytearray(path.read_bytes())
    at = data.index(b"name 50")
    data[at - 2] = 0x7F  # the union has no such branch
    path.write_bytes(data)
    bad: list[BadRecord] = []
    found = read(drain(open_input(path)), reject=bad.append)
    assert [row["id"] for row in found] == [i for i in range(100) if i not in (50, 70)]
    assert [one.position.rsplit("/", 1)[-1] for one in bad] == ["a.avro, record 51", "a.avro, record 71"]
    assert "block of 1 records cannot be decoded" in bad[0].reason
    assert bad[1].reason == "column 'id': is NULL, and the column is NOT NULL"
    assert bad[1].record == '{"ID": null, "name": "x"}'


def test_schema_of_the_configuration_is_what_records_are_read_as(tmp_path: Path) -> None:
    written(tmp_path / "a.avro", many(2))
    wanted = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "ID", "type": ["null", "long"]},
            {"name": "label", "aliases": ["name"], "type": ["null", "string"]},
        ],
    }
    sql = "CREATE TABLE t (id BIGINT, label STRING)"
    splits = drain(open_input(tmp_path / "a.avro", sql, {"schema": json.dumps(wanted)}))
    assert [row["label"] for row in read(splits, sql)] == ["name 0", "name 1"]


@pytest.mark.parametrize("text", ["{", '{"type": "record"}', '"nothing"'])
def test_wrong_schema_is_named(tmp_path: Path, text: str) -> None:
    written(tmp_path / "a.avro", many(2))
    with pytest.raises(ConnectorError, match=r"format\.config\.schema: expected an Avro schema as JSON"):
        open_input(tmp_path / "a.avro", SIMPLE, {"schema": text})


def test_followed_file_waits_for_whole_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    written(path, many(100), sync_interval=200)
    data = path.read_bytes()
    source = open_input(path, follow=True)
    path.write_bytes(data[:10])
    assert source.poll(1000) == []
    path.write_bytes(data[: len(data) // 2])
    first = source.poll(1000)
    assert source.poll(1000) == []
    path.write_bytes(data)
    assert [row["id"] for row in read(first + source.poll(1000))] == list(range(100))


def test_incomplete_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    written(path, many(100))
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(ConnectorError, match=r"a\.avro ends at byte \d+ within its header or a block"):
        drain(open_input(path))
    path.write_bytes(data[:-5] + b"12345")
    with pytest.raises(
        ConnectorError, match=r"a\.avro is not an Avro .*: the block at byte \d+ does not end"
    ):
        drain(open_input(path))
    path.write_bytes(b"id,name\n")
    with pytest.raises(ConnectorError, match=r"a\.avro is not an Avro container file: it does not start"):
        drain(open_input(path))


def test_empty_container_ends(tmp_path: Path) -> None:
    written(tmp_path / "a.avro", [])
    assert drain(open_input(tmp_path / "a.avro")) == []
