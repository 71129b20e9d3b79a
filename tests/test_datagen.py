"""datagen: settings, determinism whatever the splits, rates and limits."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Split, create_input, read_split
from penstock.connectors.input.datagen.chance import below, stream, words, zipf
from penstock.connectors.input.datagen.connector import DatagenInput, Plan
from penstock.connectors.input.datagen.words import STRATEGIES
from penstock.errors import ConnectorError
from penstock.sql import Connector, Table, parse_program

WIDE = """
CREATE TABLE t (
  id BIGINT PRIMARY KEY, tiny TINYINT, price DECIMAL(10, 2), ratio DOUBLE, name STRING, ok BOOLEAN, day DATE,
  at TIMESTAMP, local_at TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, counts MAP<INT, DOUBLE>,
  place STRUCT<x: INT, y: STRING>, pause INTERVAL DAY TO SECOND
)
"""
ALL_UNIFORM = {
    "tiny": {"strategy": "uniform", "null_percentage": 20},
    "price": {"strategy": "uniform", "range": [0, 100]},
    "ratio": {"strategy": "uniform"},
    "name": {"strategy": "uniform"},
    "ok": {"strategy": "uniform"},
    "day": {"strategy": "uniform", "range": ["2024-01-01", "2024-02-01"]},
    "at": {"strategy": "uniform", "range": ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"]},
    "local_at": {"strategy": "uniform", "range": [0, 1000]},
    "raw": {"strategy": "uniform", "range": [3, 4]},
    "tags": {"strategy": "uniform", "value": {"strategy": "word"}, "null_percentage": 10},
    "counts": {"strategy": "uniform", "range": [0, 6], "key": {"strategy": "uniform", "range": [0, 4]}},
    "place": {"fields": {"X": {"strategy": "zipf", "range": [10, 20]}, "y": {"strategy": "city_name"}}},
    "pause": {"strategy": "uniform"},
}


def table_of(sql: str) -> Table:
    return parse_program(sql).tables[0]


def input_of(config: dict[str, Any], sql: str = WIDE) -> DatagenInput:
    connector = Connector("gen", {"transport": {"name": "datagen", "config": config}})
    made = create_input(connector, table_of(sql))
    assert isinstance(made, DatagenInput)
    return made


def read(splits: list[Split], sql: str = WIDE) -> pa.Table:
    schema = to_arrow_schema(table_of(sql).schema, timezone="UTC")
    recorded = [Split(**json.loads(json.dumps(vars(split)))) for split in splits]
    batches = [batch for split in recorded for batch in read_split(split, schema)]
    table = pa.Table.from_batches(batches, schema.append(pa.field("_op", pa.int8(), nullable=False)))
    table.validate(full=True)
    return table


def generate(rows: int, fields: dict[str, Any], sql: str = WIDE, seed: int = 1) -> pa.Table:
    return read(input_of({"seed": seed, "plan": [{"limit": rows, "fields": fields}]}, sql).poll(rows), sql)


def column(kind: str, settings: dict[str, Any], rows: int = 100) -> list[Any]:
    values: list[Any] = generate(rows, {"c": settings}, f"CREATE TABLE t (c {kind})")["c"].to_pylist()
    return values


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(1, 299), max_size=6), chunk=st.integers(20, 300))
def test_rows_do_not_depend_on_how_they_are_split(cuts: list[int], chunk: int) -> None:
    whole = generate(300, ALL_UNIFORM)
    plan = {"limit": 300, "fields": ALL_UNIFORM, "worker_chunk_size": chunk}
    source = input_of({"seed": 1, "plan": [plan]})
    edges = [0, *sorted(set(cuts)), 300]
    splits = [split for a, b in itertools.pairwise(edges) for split in source.poll(b - a)]
    assert source.ended
    assert read(splits).equals(whole)


def test_seed_and_plan_change_the_rows() -> None:
    assert not generate(50, ALL_UNIFORM, seed=1).equals(generate(50, ALL_UNIFORM, seed=2))
    plan = {"limit": 50, "fields": ALL_UNIFORM}
    both = read(input_of({"seed": 1, "plan": [plan, plan]}).poll(100))
    assert not both.slice(0, 50).drop_columns("id").equals(both.slice(50).drop_columns("id"))


def test_without_a_seed_each_run_differs() -> None:
    plan = [{"limit": 20, "fields": ALL_UNIFORM}]
    assert not read(input_of({"plan": plan}).poll(20)).equals(read(input_of({"plan": plan}).poll(20)))


def test_default_counts_up() -> None:
    table = generate(3, {})
    rows = table.to_pylist()
    assert table["id"].to_pylist() == [0, 1, 2]
    assert rows[2]["price"] == Decimal("2.00")
    assert rows[2]["name"] == "2"
    assert table["ok"].to_pylist() == [False, True, False]
    assert rows[2]["day"] == dt.date(1970, 1, 3)
    assert rows[2]["at"] == dt.datetime(1970, 1, 1, 0, 0, 0, 2000, dt.UTC)
    assert table["_op"].to_pylist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("INT", {"range": [10, 13]}, [10, 11, 12, 10, 11]),
        ("INT", {"range": [10, 20], "scale": 4}, [10, 14, 18, 12, 16]),
        ("INT", {"scale": 100}, [0, 100, 200, 300, 400]),
        ("INT", {"values": [7, 9]}, [7, 9, 7, 9, 7]),
        ("INT", {"values": []}, [None] * 5),
        ("TINYINT", {"scale": 64}, [0, 64, 0, 64, 0]),
        ("DOUBLE", {"range": [1, 2], "scale": 0.25}, [1.0, 1.25, 1.5, 1.75, 1.0]),
        ("DATE", {"range": ["2024-01-01", "2024-01-03"]}, [dt.date(2024, 1, 1 + i % 2) for i in range(5)]),
        (
            "TIMESTAMP",
            {"range": ["2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"], "scale": 1000},
            [dt.datetime(2024, 1, 1, 0, 0, i, tzinfo=dt.UTC) for i in range(5)],
        ),
        (
            "TIMESTAMP",
            {"values": ["2024-05-01T00:00:00+02:00"]},
            [dt.datetime(2024, 4, 30, 22, tzinfo=dt.UTC)] * 5,
        ),
        ("DECIMAL(6, 3)", {"range": [0.5, 10]}, [Decimal(f"{i}.500") for i in range(5)]),
        ("ARRAY<INT>", {"range": [1, 3]}, [[0], [3, 4], [6], [9, 10], [12]]),
        ("STRING", {"values": ["a", None]}, ["a", None, "a", None, "a"]),
    ],
)
def test_increment(kind: str, settings: dict[str, Any], expected: list[Any]) -> None:
    assert column(kind, settings, 5) == expected


def test_uniform_stays_in_its_range() -> None:
    rows = generate(2000, ALL_UNIFORM).to_pylist()
    assert {row["price"] >= 0 and row["price"] < 100 for row in rows} == {True}
    assert {row["day"].month for row in rows} == {1}
    assert {len(row["raw"]) for row in rows} == {3}
    assert {row["at"].date() for row in rows} == {dt.date(2024, 1, 1)}
    assert max(len(row["name"]) for row in rows) == 24
    assert {10 <= row["place"]["x"] < 20 for row in rows} == {True}
    assert all(len(dict(row["counts"])) == len(row["counts"]) for row in rows)
    assert 300 < sum(row["tiny"] is None for row in rows) < 500
    assert min(row["tiny"] for row in rows if row["tiny"] is not None) < -120


def test_uniform_is_uniform() -> None:
    counts = Counter(column("INT", {"strategy": "uniform", "range": [0, 10]}, 10_000))
    assert set(counts) == set(range(10))
    assert all(850 < count < 1150 for count in counts.values())


def test_scale_multiplies_picked_values() -> None:
    assert {value % 5 for value in column("INT", {"strategy": "uniform", "range": [1, 9], "scale": 5})} == {0}


def test_whole_range_of_a_type() -> None:
    made = column("BIGINT", {"strategy": "uniform"}, 1000)
    assert min(made) < -(2**62)
    assert max(made) > 2**62
    assert len(set(made)) == 1000
    assert min(column("BIGINT", {"strategy": "zipf"})) == -(2**63)
    assert all(abs(number) < 10**38 for number in column("DECIMAL(38, 4)", {"strategy": "uniform"}))


def test_scale_multiplies_picked_decimals() -> None:
    made = column("DECIMAL(8, 2)", {"strategy": "uniform", "range": [1, 2], "scale": 100})
    assert all(100 <= number < 200 and number == int(number) for number in made)


def test_zipf_prefers_low_ranks() -> None:
    counts = Counter(column("INT", {"strategy": "zipf", "range": [0, 100], "e": 1}, 20_000))
    assert 1.7 < counts[0] / counts[1] < 2.3
    assert max(counts) <= 99
    values = Counter(column("STRING", {"strategy": "zipf", "values": ["a", "b", "c"], "e": 2}, 1000))
    assert values["a"] > values["b"] > values["c"] > 0


def test_zipf_over_a_long_range_has_a_tail() -> None:
    index = np.arange(20_000, dtype=np.uint64)
    for exponent in (0.5, 1.0, 1.5):
        ranks = zipf(10**9, exponent)(words(stream(1, 0, "z"), index))
        assert int(ranks.max()) < 10**9
        assert int(ranks.max()) > 10**5 or exponent > 1


@given(limit=st.integers(1, 2**64), seed=st.integers(0, 2**32))
def test_below_is_the_high_half_of_the_product(limit: int, seed: int) -> None:
    random = words(stream(seed, 0, "x"), np.arange(20, dtype=np.uint64))
    assert [int(n) for n in below(random, limit)] == [(int(word) * limit) >> 64 for word in random]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_strategy_makes_text(strategy: str) -> None:
    made = column("STRING", {"strategy": strategy}, 50)
    assert all(isinstance(text, str) and text for text in made)
    assert len(set(made)) > 1
    assert not any(mark in text for text in made for mark in "{}#^%")


def test_every_strategy_of_the_reference_is_known() -> None:
    expected = {
        "word",
        "sentences",
        "email",
        "ipv6",
        "isbn13",
        "rfc_status_code",
        "latitude",
        "dir_path",
        "bs",
    }
    assert expected <= set(STRATEGIES)
    assert len(STRATEGIES) == 69


def test_number_of_words_follows_the_range() -> None:
    assert {len(text.split()) for text in column("STRING", {"strategy": "words", "range": [2, 4]})} == {2, 3}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"idd": {}}, "plan[0].fields: no column 'idd'; did you mean 'id'?"),
        ({"id": {"strategi": 1}}, "unknown field 'strategi'; did you mean 'strategy'?"),
        ({"id": {"strategy": "unifrom"}}, "fields.id.strategy: expected one of"),
        ({"id": {"strategy": "word"}}, "makes text, and the column is BIGINT"),
        ({"id": {"null_percentage": 5}}, "the column is NOT NULL"),
        ({"tiny": {"null_percentage": 101}}, "expected 0 to 100, found 101"),
        ({"tiny": {"range": [5, 5]}}, "expected [a, b) with a < b"),
        ({"tiny": {"range": [0, 200]}}, "is out of range for TINYINT"),
        ({"tiny": {"range": [0, 100], "scale": 9, "strategy": "uniform"}}, "exceeds TINYINT"),
        ({"tiny": {"e": 0}}, "e: expected a number above 0"),
        ({"day": {"range": ["soon", "later"]}}, "expected bounds for DATE, found 'soon'"),
        ({"day": {"range": ["2024-01-01"]}}, "range: expected a list of two bounds"),
        ({"price": {"range": [0, "x"]}}, "price.range: expected two numbers, found 'x'"),
        ({"ratio": {"range": [2, 1]}}, "ratio.range: expected two numbers [a, b) with a < b"),
        ({"tiny": {"values": ["x"]}}, "tiny.values: 'x' is a str, expected TINYINT"),
        ({"place": {"fields": {"z": {}}}}, "place.fields: no column 'z'"),
        ({"tags": {"range": [-1, 2]}}, "two integers [a, b) with 0 <= a < b"),
    ],
)
def test_wrong_settings_of_a_field_are_named(fields: dict[str, Any], said: str) -> None:
    assert said in refusal({"plan": [{"fields": fields}]})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"plan": [{"rate": 0}]}, "plan[0].rate: expected an integer of at least 1, found 0"),
        ({"plan": [{"limit": True}]}, "plan[0].limit: expected an integer, found True"),
        ({"plan": {}}, "plan: expected a list, found {}"),
        ({"seeed": 1}, "unknown field 'seeed'; did you mean 'seed'?"),
        ({"seed": "x"}, "seed: expected an integer, found 'x'"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, Any], said: str) -> None:
    assert said in refusal(config)


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ConnectorError) as caught:
        input_of(config)
    assert "connector gen" in str(caught.value)
    return str(caught.value)


def test_rate_follows_the_clock() -> None:
    now = 100.0
    source = DatagenInput("g", [Plan({}, 10, 25, 1000), Plan({}, None, 3, 1000)], 1, clock=lambda: now)
    assert source.poll(1000) == []
    now += 0.5
    assert [split.rows for split in source.poll(1000)] == [5]
    assert source.poll(1000) == []
    now += 1.0
    assert [split.rows for split in source.poll(4)] == [4]
    assert [split.rows for split in source.poll(1000)] == [6]
    now += 10
    assert [(split.payload["plan"], split.rows) for split in source.poll(1000)] == [(0, 10), (1, 3)]
    assert source.ended
    assert source.poll(1000) == []


def test_no_limit_never_ends() -> None:
    source = input_of({})
    assert sum(split.rows or 0 for split in source.poll(200_000)) == 200_000
    assert not source.ended


def test_limit_zero_makes_nothing() -> None:
    source = input_of({"plan": [{"limit": 0}]})
    assert source.poll(10) == []
    assert source.ended


def test_transaction_size_bounds_a_poll() -> None:
    source = input_of({"transaction_size": 10, "plan": [{"limit": 25}]})
    assert [sum(split.rows or 0 for split in source.poll(1000)) for _ in range(3)] == [10, 10, 5]


def test_large_range_comes_in_batches() -> None:
    schema = to_arrow_schema(table_of(WIDE).schema, timezone="UTC")
    split = Split("datagen", {"seed": 1, "plan": 0, "start": 5, "rows": 100_000, "fields": {}}, 100_000)
    assert [batch.num_rows for batch in read_split(split, schema)] == [65_536, 34_464]
