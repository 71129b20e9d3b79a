"""A record that cannot be read is rejected with its place, and all the others are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import create_input, read_split
from penstock.connectors.interface import BadRecord
from penstock.sql import Connector, parse_program

SIMPLE = "CREATE TABLE t (id BIGINT NOT NULL, name STRING, price DECIMAL(8, 2))"


def read(
    path: Path, form: dict[str, Any] | None = None, sql: str = SIMPLE
) -> tuple[list[dict[str, Any]], list[BadRecord]]:
    """All rows and all bad records; reading a second time must give the same."""
    entry: dict[str, Any] = {"transport": {"name": "file_input", "config": {"path": str(path)}}}
    if form is not None:
        entry["format"] = form
    table = parse_program(sql).tables[0]
    schema = to_arrow_schema(table.schema, timezone="UTC")
    source = create_input(Connector("in", entry), table)
    splits = []
    while not source.ended:
        splits += source.poll(1000)

    def once() -> tuple[list[dict[str, Any]], list[BadRecord]]:
        rows: list[dict[str, Any]] = []
        bad: list[BadRecord] = []
        for split in splits:
            for batch in read_split(split, schema, reject=bad.append):
                assert batch.num_rows
                rows.extend(batch.to_pylist())
        return rows, bad

    first = once()
    assert repr(once()) == repr(first)
    return first


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def said(bad: list[BadRecord]) -> list[tuple[str, str, str]]:
    return [(one.position.rsplit("/", 1)[-1], one.reason, one.record) for one in bad]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'1,a,1.5\nx,b,1\n\n2,"",\n3,c\n4,"d\ne",1,2\n,f,1\n5,g,1.555\n 6 ,\xff,1\n7,h,\n"",i,1\n8,"j",2\n'
    )
    rows, bad = read(path)
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, ""), (7, "h"), (8, "j")]
    assert rows[1]["price"] is None
    assert said(bad) == [
        ("a.csv, line 2", "column 'id': 'x' cannot be read as BIGINT", "x,b,1"),
        ("a.csv, line 5", "has 2 cells, expected 3", "3,c"),
        ("a.csv, line 6", "has 4 cells, expected 3", '4,"d\ne",1,2'),
        ("a.csv, line 8", "column 'id': is NULL, and the column is NOT NULL", ",f,1"),
        ("a.csv, line 9", "column 'price': '1.555' cannot be read as DECIMAL(8, 2)", "5,g,1.555"),
        ("a.csv, line 10", "column 'name': '\ufffd' cannot be read as STRING", " 6 ,\ufffd,1"),
        ("a.csv, line 12", "column 'id': '' cannot be read as BIGINT", '"",i,1'),
    ]


def test_csv_reads_good_records_alike_with_and_without_a_bad_one(tmp_path: Path) -> None:
    sql = """CREATE TABLE t (i INT, b BOOLEAN, f DOUBLE, g FLOAT, d DATE, at TIMESTAMP, raw BINARY,
             tags ARRAY<INT>, s STRING)"""
    good = (
        '1,true,1.5,2,2024-01-02,2024-01-02 03:04:05,AP8=,"[1]",x\n'
        '" 2",TRUE, 1e5 ,nan,,2024-01-02T03:04:05Z,,,""\n'
        '"3",0,,inf,2024-01-02,,AP8=,"[null]",\n'
        ',1,"-0.0",,,,,,"a ""b"""\n'
    )
    (tmp_path / "good.csv").write_text(good)
    (tmp_path / "bad.csv").write_text(good + "x" + good[1:] + "too,few\n" + good)
    expected, none = read(tmp_path / "good.csv", sql=sql)
    rows, bad = read(tmp_path / "bad.csv", sql=sql)
    assert not none
    assert repr(rows) == repr(expected + expected[1:] + expected)
    assert [one.position.rsplit(" ", 1)[-1] for one in bad] == ["5", "9"]


def test_csv_column_that_is_missing_rejects_every_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,price\na,1\nb,2\n")
    rows, bad = read(tmp_path / "a.csv", {"name": "csv", "config": {"headers": True}})
    assert not rows
    assert said(bad)[1] == (
        "a.csv, line 3",
        "column 'id': is missing; it is NOT NULL and has no default",
        "b,2",
    )


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "name": "a"}',
        '{"id": }',
        "",
        '{"id": "2"}',
        "[" * 100_000,
        '{"id": ' + "9" * 5000 + "}",
        '{"id": 1, "price": 1e9999999999999999999}',
        '{"name": "x"}',
        '{"id": 3, "price": "1.555"}',
        '{"id": 4}',
        '{"id": 5, "name": "\\ud800"}',
        "7",
        '{"id": 6, "price": 2.25}',
    ]
    (tmp_path / "a.json").write_bytes("\n".join(lines).encode() + b'\n{"id": \xff}\n{"id": 7}')
    rows, bad = read(tmp_path / "a.json")
    assert ids(rows) == [1, 4, 6, 7]
    assert [int(one.position.rsplit(" ", 1)[-1]) for one in bad] == [2, 4, 5, 6, 7, 8, 9, 11, 12, 14]
    assert said(bad)[0] == ("a.json, line 2", "is not JSON: Expecting value at column 8", '{"id": }')
    assert said(bad)[6] == (
        "a.json, line 9",
        "column 'price': '1.555' cannot be read as DECIMAL(8, 2)",
        '{"id": 3, "price": "1.555"}',
    )
    assert len(bad[2].record) < 20_000


def test_json_array_names_the_element(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1}, {"id": "x"}, 5]\n{"id": 2}\n[{"id": 3}]\n')
    rows, bad = read(tmp_path / "a.json", {"name": "json", "config": {"array": True}})
    assert ids(rows) == [1, 3]
    assert [(place, record) for place, _, record in said(bad)] == [
        ("a.json, line 1, element 2", '{"id": "x"}'),
        ("a.json, line 1, element 3", "5"),
        ("a.json, line 2", '{"id": 2}'),
    ]


def test_json_values_over_lines_end_at_the_first_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id":\n1}\n{"id": "x"}\n{"id": 2}\n{"id"\n3}\n{"id": 4}\n')
    rows, bad = read(tmp_path / "a.json", {"name": "json", "config": {"lines": "multiple"}})
    assert ids(rows) == [1, 2]
    assert [(place, record) for place, _, record in said(bad)] == [
        ("a.json, line 3", '{"id": "x"}'),
        ("a.json, line 6", '{"id"\n3}\n{"id": 4}\n'),
    ]


def test_json_element_is_taken_or_rejected_as_a_whole(tmp_path: Path) -> None:
    lines = [
        {"delete": {"id": 1}, "insert": {"id": "x"}},
        {"delete": {"id": 2}, "insert": {"id": 2}},
        {"upsert": {"id": 3}},
    ]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, lines)))
    rows, bad = read(tmp_path / "a.json", {"name": "json", "config": {"update_format": "insert_delete"}})
    assert [(row["id"], row["_op"]) for row in rows] == [(2, -1), (2, 1)]
    assert [place for place, _, _ in said(bad)] == ["a.json, line 1", "a.json, line 3"]
    (tmp_path / "b.json").write_text('{"weight": 3, "data": {"id": "x"}}\n{"weight": 2, "data": {"id": 1}}\n')
    rows, bad = read(tmp_path / "b.json", {"name": "json", "config": {"update_format": "weighted"}})
    assert ids(rows) == [1, 1]
    assert len(bad) == 1


def test_parquet_counts_rows_over_row_groups(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": [1, None, 3, 4], "price": ["a", None, None, None], "other": [1, 2, 3, 4]}),
        tmp_path / "a.parquet",
        row_group_size=2,
    )
    rows, bad = read(tmp_path / "a.parquet", sql="CREATE TABLE t (id TINYINT NOT NULL, price DECIMAL(8, 2))")
    assert ids(rows) == [3, 4]
    assert [(place, record) for place, _, record in said(bad)] == [
        ("a.parquet, row 1", '{"id": 1, "price": "a"}'),
        ("a.parquet, row 2", '{"id": null, "price": null}'),
    ]
    pq.write_table(pa.table({"id": [1, 300, 3]}), tmp_path / "b.parquet", row_group_size=1)
    rows, bad = read(tmp_path / "b.parquet", sql="CREATE TABLE t (id TINYINT)")
    assert ids(rows) == [1, 3]
    assert said(bad) == [
        (
            "b.parquet, row 2",
            "column 'id': 300 is out of range for TINYINT (-128 to 127)",
            '{"id": 300}',
        )
    ]


@pytest.mark.parametrize("suffix", ["csv", "json"])
@pytest.mark.parametrize("every", [1, 7])
def test_many_bad_records(tmp_path: Path, suffix: str, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.input.progress.SPLIT_BYTES", 20_000)
    path = tmp_path / f"a.{suffix}"
    values: list[Any] = [f"x{i}" if i % every == 0 else i for i in range(5000)]
    if suffix == "csv":
        path.write_text("".join(f"{value},n,1\n" for value in values))
    else:
        path.write_text("".join(json.dumps({"id": value}) + "\n" for value in values))
    rows, bad = read(path)
    assert ids(rows) == [value for value in values if isinstance(value, int)]
    wrong = [i + 1 for i in range(0, 5000, every)]
    assert [int(one.position.rsplit(" ", 1)[-1]) for one in bad] == wrong


def test_csv_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        "1,ä,1\n\xff\n".encode("latin-1") + "2,ä,1\n".encode() + b"\xff,\xfe,1\n"
    )
    rows, bad = read(tmp_path / "a.csv")
    assert [(row["id"], row["name"]) for row in rows] == [(2, "ä")]
    assert [(place, reason) for place, reason, _ in said(bad)] == [
        ("a.csv, line 1", "column 'name': '\ufffd' cannot be read as STRING"),
        ("a.csv, line 2", "has 1 cells, expected 3"),
        ("a.csv, line 4", "column 'id': '\ufffd' cannot be read as BIGINT"),
    ]
    (tmp_path / "b.csv").write_bytes(b"other,more\n1,2\n\xff\n")
    rows, bad = read(
        tmp_path / "b.csv", {"name": "csv", "config": {"headers": True}}, "CREATE TABLE t (id INT)"
    )
    assert ids(rows) == [None]
    assert len(bad) == 1


@settings(deadline=None, max_examples=100)
@given(
    lines=st.lists(
        st.lists(
            st.sampled_from([b"1", b"x", b"", b'""', b"1.5", b'"a,b"', b'"x\ny"', b"\xff", b" 7 ", b"1.555"]),
            min_size=2,
            max_size=4,
        ).map(b",".join),
        max_size=6,
    )
)
def test_csv_records_do_not_depend_on_their_neighbours(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    rows, bad = read(path)
    alone, rejected = [], []
    for line in lines:
        path.write_bytes(line + b"\n")
        found = read(path)
        alone += found[0]
        rejected += [(one.reason, one.record) for one in found[1]]
    assert rows == alone
    assert [(one.reason, one.record) for one in bad] == rejected
