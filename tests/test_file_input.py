"""file_input: CSV, JSON lines and Parquet, in splits that together give every row once."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Input, Split, create_input, read_split
from penstock.connectors.formats.lines import next_range
from penstock.errors import ConnectorError
from penstock.sql import Connector, Table, parse_program

SIMPLE = "CREATE TABLE t (id BIGINT NOT NULL, name STRING, price DECIMAL(8, 2))"
KEYED = "CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING NOT NULL)"
WIDE = """CREATE TABLE t (
  id INT, ok BOOLEAN, ratio DOUBLE, day DATE, at TIMESTAMP, local_at TIMESTAMP_NTZ, raw BINARY,
  tags ARRAY<INT>, counts MAP<STRING, INT>, place STRUCT<x: INT, at: DATE>)"""
WIDE_ROW = {
    "id": 1,
    "ok": True,
    "ratio": 0.5,
    "day": dt.date(2024, 1, 2),
    "at": dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=dt.UTC),
    "local_at": dt.datetime(2024, 1, 2, 3, 4, 5),
    "raw": b"\x00\xff",
    "tags": [1, None],
    "counts": [("a", 1)],
    "place": {"x": 3, "at": dt.date(2024, 5, 1)},
    "_op": 1,
}


def table_of(sql: str) -> Table:
    return parse_program(sql).tables[0]


def open_input(
    path: Path | str, form: dict[str, Any] | None = None, sql: str = SIMPLE, **config: Any
) -> Input:
    entry: dict[str, Any] = {"transport": {"name": "file_input", "config": {"path": str(path), **config}}}
    if form is not None:
        entry["format"] = form
    return create_input(Connector("in", entry), table_of(sql))


def read(splits: list[Split], sql: str = SIMPLE, **defaults: Any) -> list[dict[str, Any]]:
    schema = to_arrow_schema(table_of(sql).schema, timezone="UTC")
    rows: list[dict[str, Any]] = []
    for split in splits:
        recorded = Split(**json.loads(json.dumps(vars(split))))
        for batch in read_split(recorded, schema, defaults):
            assert batch.schema.names == [*schema.names, "_op"]
            assert batch.schema.types == [*schema.types, pa.int8()]
            rows.extend(batch.to_pylist())
    return rows


def drain(source: Input, max_rows: int = 1000) -> list[Split]:
    splits: list[Split] = []
    while not source.ended:
        splits.extend(source.poll(max_rows))
    return splits


def read_all(
    path: Path, text: str, form: dict[str, Any] | None = None, sql: str = SIMPLE
) -> list[dict[str, Any]]:
    path.write_text(text)
    return read(drain(open_input(path, form, sql)), sql)


def refusal(path: Path, text: str, form: dict[str, Any] | None = None, sql: str = SIMPLE) -> str:
    with pytest.raises(ConnectorError) as caught:
        read_all(path, text, form, sql)
    return str(caught.value)


CSV = {"name": "csv", "config": {"headers": True}}


def test_csv_with_header_finds_columns_by_name(tmp_path: Path) -> None:
    rows = read_all(tmp_path / "a.csv", 'Price,ID,other\n1.5,1,x\n,2,"y\nz"\n', CSV)
    assert rows == [
        {"id": 1, "name": None, "price": Decimal("1.50"), "_op": 1},
        {"id": 2, "name": None, "price": None, "_op": 1},
    ]


def test_csv_without_header_goes_by_position(tmp_path: Path) -> None:
    rows = read_all(tmp_path / "a.csv", '1,"a,""b""",2.25\n2,"",\n3,,\n')
    assert [(row["id"], row["name"], row["price"]) for row in rows] == [
        (1, 'a,"b"', Decimal("2.25")),
        (2, "", None),
        (3, None, None),
    ]


def test_csv_with_another_delimiter_and_byte_order_mark(tmp_path: Path) -> None:
    form = {"name": "csv", "config": {"delimiter": ";", "headers": True}}
    assert read_all(tmp_path / "a.csv", "\ufeffid;name\n1;a,b\n", form)[0]["name"] == "a,b"


def test_csv_cells_of_every_type(tmp_path: Path) -> None:
    text = (
        "1,true,0.5,2024-01-02,2024-01-02T03:04:05+02:00,2024-01-02 03:04:05,AP8=,"
        '"[1, null]","{""a"": 1}","{""x"": 3, ""at"": ""2024-05-01""}"\n'
    )
    assert read_all(tmp_path / "a.csv", text, sql=WIDE) == [WIDE_ROW]


def test_timestamps_with_and_without_offset(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (at TIMESTAMP)"
    rows = read_all(
        tmp_path / "a.csv", "2024-01-01 12:00:00\n2024-01-01T12:00:00Z\n2024-01-01T12:00+0200\n", sql=sql
    )
    assert [row["at"].hour for row in rows] == [12, 12, 10]


def test_json_lines_of_every_type(tmp_path: Path) -> None:
    line = {
        "ID": 1,
        "ok": True,
        "ratio": 0.5,
        "day": "2024-01-02",
        "at": "2024-01-02T03:04:05+02:00",
        "local_at": "2024-01-02 03:04:05",
        "raw": "AP8=",
        "tags": [1, None],
        "counts": {"a": 1},
        "place": {"x": 3, "at": "2024-05-01"},
        "unknown": {"is": "ignored"},
    }
    assert read_all(tmp_path / "a.jsonl", json.dumps(line) + "\n\n", sql=WIDE) == [WIDE_ROW]


def test_json_numbers_stay_exact(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (id BIGINT, d DECIMAL(38, 10), f DOUBLE)"
    text = (
        '{"id": 9223372036854775807, "d": 12345678901234567.0123456789, "f": 1}\n'
        '{"id": 1, "d": "1.5", "f": "NaN"}'
    )
    first, second = read_all(tmp_path / "a.json", text, sql=sql)
    assert first["id"] == 2**63 - 1
    assert first["d"] == Decimal("12345678901234567.0123456789")
    assert second["d"] == Decimal("1.5")
    assert second["f"] != second["f"]


@pytest.mark.parametrize("extra", ["", ', "tag": {"nested": true}'])
def test_json_fast_and_slow_reader_agree(tmp_path: Path, extra: str) -> None:
    lines = [f'{{"id": {i}, "name": "n{i}", "price": "{i}.5"{extra if i % 2 else ""}}}' for i in range(50)]
    mixed = [line.replace('"id"', '"ID"') if i % 3 else line for i, line in enumerate(lines)]
    fast = read_all(tmp_path / "a.json", "\n".join(lines))
    slow = read_all(tmp_path / "b.json", "\n".join(mixed))
    assert fast == slow
    assert fast[3] == {"id": 3, "name": "n3", "price": Decimal("3.50"), "_op": 1}


def test_json_insert_delete(tmp_path: Path) -> None:
    form = {"name": "json", "config": {"update_format": "insert_delete"}}
    text = '{"insert": {"id": 1, "name": "a"}}\n{"delete": {"id": 1}}\n'
    assert read_all(tmp_path / "a.json", text, form, KEYED) == [
        {"id": 1, "name": "a", "_op": 1},
        {"id": 1, "name": None, "_op": -1},
    ]


def test_json_weighted_and_array(tmp_path: Path) -> None:
    form = {"name": "json", "config": {"update_format": "weighted", "array": True}}
    text = '[{"weight": 2, "data": {"id": 1}}, {"weight": -1, "data": {"id": 2}}]\n[]\n'
    rows = read_all(tmp_path / "a.json", text, form)
    assert [(row["id"], row["_op"]) for row in rows] == [(1, 1), (1, 1), (2, -1)]


def test_json_values_over_several_lines(tmp_path: Path) -> None:
    form = {"name": "json", "config": {"array": True, "lines": "multiple"}}
    text = json.dumps([{"id": 1}, {"id": 2}], indent=2) + "\n" + json.dumps([{"id": 3}])
    assert [row["id"] for row in read_all(tmp_path / "a.json", text, form)] == [1, 2, 3]
    assert "line 3: is not JSON" in refusal(tmp_path / "b.json", '[\n{"id": 1},\n{"id" 2}]', form)


def test_missing_columns_take_their_default(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id": 2, "name": null}\n')
    splits = drain(open_input(tmp_path / "a.json"))
    assert [row["name"] for row in read(splits, name="none")] == ["none", None]
    (tmp_path / "a.csv").write_text("id\n1\n")
    assert read(drain(open_input(tmp_path / "a.csv", CSV)), name="none")[0]["name"] == "none"


def many_lines(count: int) -> str:
    return "".join(f"{i},name {i},{i}.5\n" for i in range(count))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_splits_give_every_row_once(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.input.progress.SPLIT_BYTES", 2000)
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        path.write_text(many_lines(1000))
    elif suffix == "jsonl":
        path.write_text("\n".join(json.dumps({"id": i, "name": f"name {i}"}) for i in range(1000)))
    else:
        pq.write_table(pa.table({"ID": list(range(1000))}), path, row_group_size=100)
    source = open_input(path)
    splits = drain(source)
    assert len(splits) > 5
    assert [row["id"] for row in read(splits)] == list(range(1000))
    assert 900 < sum(split.rows or 0 for split in splits) < 1100


def test_poll_gives_about_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(many_lines(10_000))
    source = open_input(tmp_path / "a.csv")
    assert 50 <= len(read(source.poll(100))) <= 200
    assert not source.ended


@settings(deadline=None, max_examples=200)
@given(
    records=st.lists(
        st.lists(st.sampled_from(["a", '""', "\n", ",", "x\ny"]), max_size=4), min_size=1, max_size=20
    ),
    want=st.integers(1, 40),
    final=st.booleans(),
)
def test_csv_is_never_cut_inside_a_record(
    tmp_path_factory: pytest.TempPathFactory, records: list[list[str]], want: int, final: bool
) -> None:
    whole = [f'"{"".join(parts)}"'.encode() for parts in records]
    data = b"\n".join(whole) + (b"\n" if final else b"")
    path = tmp_path_factory.mktemp("cut") / "a.csv"
    path.write_bytes(data)
    ends, position = {len(data)}, 0
    for record in whole:
        position += len(record) + 1
        ends.add(position)
    at = 0
    with open(path, "rb") as file:
        while (found := next_range(file, at, want, quotes=True, whole=True)) is not None:
            assert found.start == at
            assert found.end in ends
            at = found.end
    assert at == len(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,a,1.5\nx,b,1\n", "a.csv, line 2: column 'id': 'x' cannot be read as BIGINT"),
        ("1,a,1.5\n2,b,1.555\n", "line 2: column 'price': '1.555' cannot be read as DECIMAL(8, 2)"),
        ('1,"a\nb",1.5\n2,b\n', "line 3: has 2 cells, expected 3"),
        ("1,a,1.5\n,b,1\n", "line 2: column 'id': is NULL, and the column is NOT NULL"),
        ("99999999999999999999,b,1\n", "line 1: column 'id'"),
    ],
)
def test_bad_csv_record_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path / "a.csv", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": 1}\n{"id": }\n', "a.json, line 2: is not JSON: Expecting value at column 8"),
        ('{"id": 1}\n\n{"id": "1"}\n', "line 3: column 'id': '1' is a str, expected BIGINT"),
        ('{"id": 1}\n{"name": "x"}\n', "line 2: column 'id': is missing; it is NOT NULL"),
        ('{"id": null}\n', "line 1: column 'id': is NULL, and the column is NOT NULL"),
        ('{"id": 1, "price": "1.555"}\n', "line 1: column 'price': '1.555' cannot be read as DECIMAL(8, 2)"),
        ("[1]\n", "line 1: expected an object with the columns of the row, found an array"),
        ('{"id": 1, "ID": 2}\n', "line 1: has two fields whose names differ only in the case"),
        ('{"id": 1.5}\n', "line 1: column 'id'"),
    ],
)
def test_bad_json_record_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path / "a.json", text)


def test_bad_json_envelope_is_named(tmp_path: Path) -> None:
    form = {"name": "json", "config": {"update_format": "insert_delete"}}
    assert 'line 1: expected {"insert"' in refusal(tmp_path / "a.json", '{"upsert": {}}', form)
    form = {"name": "json", "config": {"update_format": "weighted"}}
    assert 'line 1: expected {"weight"' in refusal(tmp_path / "a.json", '{"weight": "2", "data": {}}', form)


def test_empty_cell_of_a_not_null_text_column(tmp_path: Path) -> None:
    text = '1,"x\ny"\n\n2,""\n3,\n'
    assert "line 5: column 'name': is NULL" in refusal(tmp_path / "a.csv", text, sql=KEYED)


def test_line_number_counts_from_the_start_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.input.progress.SPLIT_BYTES", 500)
    text = "id,name,price\n" + many_lines(500) + "oops,x,1\n"
    assert "line 502: column 'id': 'oops'" in refusal(tmp_path / "a.csv", text, CSV)


def test_bad_parquet_value_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(["1", "2"])}), tmp_path / "a.parquet")
    with pytest.raises(ConnectorError, match=r"row 1: column 'id': '1' is a str, expected BIGINT"):
        read(drain(open_input(tmp_path / "a.parquet")))
    (tmp_path / "b.parquet").write_text("not parquet")
    with pytest.raises(ConnectorError, match=r"b\.parquet is not a Parquet file"):
        drain(open_input(tmp_path / "b.parquet"))


def test_directory_and_glob_are_read_in_order_of_names(tmp_path: Path) -> None:
    for name, id_ in (("b.csv", 2), ("a.csv", 1), ("c.txt", 3), (".hidden", 4)):
        (tmp_path / name).write_text(f"{id_},x,1\n")
    form = {"name": "csv"}
    assert [row["id"] for row in read(drain(open_input(tmp_path, form)))] == [1, 2, 3]
    assert [row["id"] for row in read(drain(open_input(tmp_path / "*.csv")))] == [1, 2]
    assert [row["id"] for row in read(drain(open_input(f"file://{tmp_path}/a.csv")))] == [1]


def test_follow_sees_appended_lines_and_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.input.file._LOOK_SECONDS", 0)
    source = open_input(tmp_path / "*.csv", follow=True)
    assert source.poll(100) == []
    first = tmp_path / "a.csv"
    first.write_text("1,a,1\n2,b")
    assert [row["id"] for row in read(source.poll(100))] == [1]
    assert source.poll(100) == []
    with first.open("a") as file:
        file.write(",2\n")
    (tmp_path / "b.csv").write_text("3,c,3\n")
    assert [row["id"] for row in read(source.poll(100))] == [2, 3]
    assert not source.ended
    first.write_text("")
    with pytest.raises(ConnectorError, match=r"a\.csv shrank from 12 to 0 bytes"):
        source.poll(100)


def test_follow_waits_for_a_complete_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("na")
    source = open_input(path, CSV, follow=True)
    assert source.poll(10) == []
    path.write_text("name,id\nx,1\n")
    assert read(source.poll(10))[0]["name"] == "x"


def test_empty_file_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    assert drain(open_input(tmp_path / "a.csv")) == []
    (tmp_path / "b.csv").write_text("id,name\n")
    assert drain(open_input(tmp_path / "b.csv", CSV)) == []


def test_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,a,1\n2,b,2\n")
    splits = drain(open_input(path))
    path.write_text("1,a,1\n")
    with pytest.raises(ConnectorError, match="ends at byte 6, and bytes 0 to 12 were expected"):
        read(splits)
    path.unlink()
    with pytest.raises(ConnectorError, match="cannot read"):
        read(splits)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"transport": {"name": "file_input", "config": {}}},
            "the field 'path' is missing; expected a string",
        ),
        ({"transport": {"name": "file_input", "config": {"path": 5}}}, "path: expected a string, found 5"),
        ({"transport": {"name": "file_input", "config": {"path": "s3://b/a.csv"}}}, "expected a local path"),
        ({"transport": {"name": "file_input", "config": {"path": "none.csv"}}}, "no file matches"),
        ({"transport": {"name": "file_input", "config": {"path": "a.dat"}}}, "the field 'format' is missing"),
        ({"transport": {"name": "file_inptu", "config": {}}}, "did you mean 'file_input'?"),
        (
            {"transport": {"name": "nats_input", "config": {}}},
            "unknown transport 'nats_input'; known: file_input",
        ),
        (
            {"transport": {"name": "file_input", "config": {"path": "a"}}, "format": {"name": "xml"}},
            "format.name: expected one of csv, json, parquet, avro, found 'xml'",
        ),
        (
            {
                "transport": {"name": "file_input", "config": {"path": "a"}},
                "format": {"name": "csv", "config": {"delimiter": "||"}},
            },
            "delimiter: expected one ASCII character",
        ),
        (
            {
                "transport": {"name": "file_input", "config": {"path": "a", "follow": True}},
                "format": {"name": "json", "config": {"lines": "multiple"}},
            },
            "'follow' needs one JSON value per line",
        ),
    ],
)
def test_wrong_configuration_is_named(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        create_input(Connector("in", entry), table_of(SIMPLE))
    assert said in str(caught.value)
    assert "connector in" in str(caught.value)
