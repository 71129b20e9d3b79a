"""Messages that are parsed together come to the same as messages that are parsed one by one."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.connectors.formats.messages import MessageRejections, message_settings, parse_messages
from penstock.connectors.formats.record import Target
from penstock.connectors.interface import BadRecord

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ONE = pa.schema([("name", pa.string())])
BOM = codecs.BOM_UTF8
BLANK = [b"", b" ", b"\n", b"\r\n", b"\r", b"\t", b"\x0b", b"\n\n", b" \n ", BOM, BOM + b"\n", BOM + BOM]
PIECES = {
    "json": [b'{"id":1}', b'{"name":"x"}', b'{"id":2,"name":"\\n"}', b"{", b"}", b'"', b"bad", b"\xff"],
    "csv": [b"1,a", b"2", b",", b'"', b"x", b'3,"b"', b"4,c\n5,d", b"\xff", b"\x00"],
    "raw": [b"a", b"b\nc", b"\xff"],
}

Found = tuple[list[tuple[int, Any]], list[tuple[str, str, str]]]


def parsed(values: Sequence[bytes], settings: Mapping[str, Any], schema: pa.Schema, first: int = 0) -> Found:
    """The rows with the numbers of their messages, and what was rejected."""
    bad: list[BadRecord] = []
    offsets = range(first, first + len(values))
    rejections = MessageRejections("t[0]", "message", 0, bad.append, offsets)
    target = Target(schema, (), {})
    rows = [
        (first + int(number), row)
        for found in parse_messages(values, settings, target, rejections, numbered=True)
        for number, row in zip(found.numbers, found.batch.to_pylist(), strict=True)
    ]
    return rows, sorted((record.position, record.reason, record.record) for record in bad)


def check(values: Sequence[bytes], settings: Mapping[str, Any], schema: pa.Schema) -> Found:
    rows, bad = parsed(values, settings, schema)
    alone = [parsed([value], settings, schema, number) for number, value in enumerate(values)]
    assert rows == [row for found, _ in alone for row in found]
    assert [record[:2] for record in bad] == sorted(record[:2] for _, found in alone for record in found)
    return rows, bad


def message(kind: str) -> st.SearchStrategy[bytes]:
    piece = st.sampled_from([*BLANK, *PIECES[kind]])
    return st.lists(piece, max_size=3).map(b"".join)


@pytest.mark.parametrize("schema", [SCHEMA, ONE], ids=["two", "one"])
@pytest.mark.parametrize("kind", PIECES)
def test_together_and_one_by_one(kind: str, schema: pa.Schema) -> None:
    config = {"column_name": "name"} if kind == "raw" else {}
    settings = message_settings("t", {"name": kind, "config": config})

    @given(st.lists(message(kind), max_size=6))
    @example([b"\n", b"bad"])
    @example([BOM, b"1,a"])
    @example([b" ", b"x"])
    def same(values: list[bytes]) -> None:
        check(values, settings, schema)

    same()


@pytest.mark.parametrize("blank", [b"\n", b"\r\n"])
def test_a_blank_message_does_not_move_those_behind_it(blank: bytes) -> None:
    settings = message_settings("t", {"name": "json"})
    values = [blank, b'{"id":2}', b"bad", b'{"id":4}']
    rows, bad = parsed(values, settings, SCHEMA)
    assert [(number, row["id"]) for number, row in rows] == [(1, 2), (3, 4)]
    assert [position for position, _, _ in bad] == ["t[0], offset 0", "t[0], offset 2"]


def test_a_csv_message_may_begin_with_a_byte_order_mark() -> None:
    settings = message_settings("t", {"name": "csv"})
    rows, bad = parsed([BOM + b"1,a", BOM + b"2,b", BOM, b"3,c"], settings, SCHEMA)
    assert [(number, row["id"]) for number, row in rows] == [(0, 1), (1, 2), (3, 3)]
    assert [reason for _, reason, _ in bad] == ["is not CSV: it is empty"]
