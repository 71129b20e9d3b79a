"""JSON that is pushed: what Arrow's reader takes, Python's would have taken as well, and in the same way."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.formats.json import parse_json
from penstock.connectors.formats.record import Rejections, Target
from penstock.connectors.interface import BadRecord
from penstock.connectors.push import parse_pushed
from penstock.sql import parse_program

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("f", pa.float32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
    ]
)
TARGET = Target(SCHEMA, ["id"], {})


def parsed(data: bytes, **settings: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows, and why others were rejected."""
    bad: list[BadRecord] = []
    full = {"name": "json", "update_format": "raw", "array": False, "lines": "any", **settings}
    batches = list(parse_json(data, full, TARGET, Rejections("x", "line", 0, bad.append)))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return rows, [record.reason for record in bad]


@pytest.mark.parametrize("update_format", ["raw", "insert_delete"])
@pytest.mark.parametrize(
    "records",
    [
        [{"id": 1}, {"id": 2, "name": "b"}],
        [{}],
        [{"id": 1, "unknown": [1]}],
        [{"id": 1, "f": "1"}],
        [{"ID": 1, "Name": "x"}],
        [{"id": 1, "at": "2024-05-01 10:00:00", "day": "2024-05-01"}],
        [{"id": 1 << 70}],
    ],
)
def test_both_readers_agree(records: list[dict[str, Any]], update_format: str) -> None:
    wrapped = records if update_format == "raw" else [{"insert": record} for record in records]
    data = "\n".join(json.dumps(record) for record in wrapped).encode()
    fast = parsed(data, update_format=update_format)
    assert fast == parsed(data, update_format=update_format, lines="multiple")


@pytest.mark.parametrize("lines", ["single", "multiple", "any"])
def test_what_is_not_utf8_is_refused(lines: str) -> None:
    rows, reasons = parsed(b'{"id": 1, "name": "a"}\n{"id": 2, "name": "\xff"}', lines=lines)
    assert len(rows) < 2
    assert "is not UTF-8" in reasons[0]


def test_values_over_several_lines_and_in_one() -> None:
    rows, reasons = parsed(b'{"id":\n 1} {"id": 2}{"id": 3}')
    assert ([row["id"] for row in rows], reasons) == ([1, 2, 3], [])


@pytest.mark.parametrize(
    "data",
    [
        b'{"id":\n 1}',
        b'{"id": 1} {"id": 2}\n{"id": 3}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}\n{"id": 2}{"id": 3}\n{"id":\n4}',
    ],
)
def test_single_means_one_value_in_each_line(data: bytes) -> None:
    assert parsed(data, lines="single")[1]


def test_blank_lines_are_passed_over() -> None:
    rows, reasons = parsed(b'\n{"id": 1}\r\n  \n{"id": 2}\n\n', lines="single")
    assert ([row["id"] for row in rows], reasons) == ([1, 2], [])


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_value() -> None:
    table = parse_program("CREATE TABLE t (id BIGINT);").tables[0]
    rows = parse_pushed(
        b'\xef\xbb\xbf{"id": 1}', {"name": "json", "config": {}}, table, pa.schema([("id", pa.int64())]), {}
    )
    assert rows.column("id").to_pylist() == [1]


def test_milliseconds_of_pandas() -> None:
    data = b'[{"id": 1, "at": 1714557600000, "day": 1714521600000}, {"id": 2, "at": true}]'
    rows, reasons = parsed(data, array=True, json_flavor="pandas")
    assert rows[0]["at"] == dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
    assert rows[0]["day"] == dt.date(2024, 5, 1)
    assert len(reasons) == 1


def test_changes_of_debezium() -> None:
    data = b"""
{"payload": {"op": "c", "after": {"id": 1}}}
{"payload": {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}}}
{"payload": {"op": "u", "after": {"id": 2}}}
{"payload": {"op": "d", "before": {"id": 1}}}
{"payload": {"op": "d"}}
{"op": "c"}
"""
    rows, reasons = parsed(data, update_format="debezium", lines="single")
    assert [(row["_op"], row["id"], row["name"]) for row in rows] == [
        (1, 1, None),
        (-1, 1, None),  # of a row to delete only its key matters
        (1, 1, "b"),
        (1, 2, None),
        (-1, 1, None),
    ]
    assert len(reasons) == 2
