"""datagen: settings, determinism whatever the splits, rates and limits."""

from __future__ import annotations

import datetime as dt
import ipaddress
import itertools
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Split, create_input, read_split
from penstock.connectors.input.datagen.chance import Origin, below, words, zipf
from penstock.connectors.input.datagen.connector import DatagenInput
from penstock.connectors.input.datagen.numbers import counted
from penstock.connectors.input.datagen.plan import Plan
from penstock.connectors.input.datagen.words import STRATEGIES
from penstock.errors import ConnectorError
from penstock.sql import Connector, Table, parse_program

WIDE = """
CREATE TABLE t (
  id BIGINT PRIMARY KEY, tiny TINYINT, price DECIMAL(10, 2), ratio DOUBLE, name STRING, ok BOOLEAN, day DATE,
  at TIMESTAMP, local_at TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, counts MAP<INT, DOUBLE>,
  place STRUCT<x: INT, y: STRING>, pause INTERVAL DAY TO SECOND, huge DECIMAL(38, 10), doc VARIANT,
  grid ARRAY<MAP<STRUCT<a: INT, b: STRING>, ARRAY<FLOAT>>>, text STRING
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
    "place": {
        "null_percentage": 10,
        "fields": {"X": {"strategy": "zipf", "range": [10, 20]}, "y": {"strategy": "city_name"}},
    },
    "pause": {"strategy": "uniform"},
    "huge": {"strategy": "uniform"},
    "doc": {"strategy": "word", "null_percentage": 10},
    "grid": {
        "strategy": "uniform",
        "value": {
            "strategy": "zipf",
            "null_percentage": 10,
            "key": {"fields": {"a": {"strategy": "uniform", "range": [0, 3]}}},
            "value": {"strategy": "uniform", "value": {"strategy": "uniform", "null_percentage": 10}},
        },
    },
    "text": {"strategy": "paragraphs"},
}
TYPES = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "VARCHAR(9)", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "VARIANT", "INTERVAL DAY TO SECOND", "INTERVAL HOUR"),
    *("DECIMAL(1, 0)", "DECIMAL(18, 18)", "DECIMAL(19, 1)", "DECIMAL(38, 0)", "DECIMAL(38, 38)"),
    *("ARRAY<DECIMAL(38, 4)>", "MAP<DATE, VARIANT>", "MAP<ARRAY<INT>, STRING>", "STRUCT<a: INT NOT NULL>"),
    *("ARRAY<VARIANT>", "STRUCT<a: STRUCT<b: ARRAY<BOOLEAN>>>"),
]


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
    for field in table.schema:
        keeps_not_null(table[field.name].combine_chunks(), field)
    return table


def keeps_not_null(values: pa.Array, field: pa.Field) -> None:
    """What is NOT NULL has no NULLs, even inside of something that is NULL: Arrow's casts look there too."""
    assert field.nullable or values.null_count == 0
    kind = field.type
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            keeps_not_null(values.field(index), kind.field(index))
    elif pa.types.is_map(kind):
        keeps_not_null(values.keys, kind.key_field)
        keeps_not_null(values.items, kind.item_field)
    elif pa.types.is_list(kind):
        keeps_not_null(values.values, kind.value_field)


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


@settings(deadline=None, max_examples=15)
@given(first=st.integers(0, 2**40), rows=st.integers(1, 60), cut=st.integers(0, 60))
def test_any_range_of_rows_can_be_made_alone(first: int, rows: int, cut: int) -> None:
    payload = {"seed": 5, "table": "t", "plan": 0, "fields": ALL_UNIFORM}
    cut = min(cut, rows)

    def made(start: int, count: int) -> pa.Table:
        return read([Split("datagen", {**payload, "start": start, "rows": count})])

    assert pa.concat_tables([made(first, cut), made(first + cut, rows - cut)]).equals(made(first, rows))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_does_not_depend_on_how_rows_are_split(strategy: str) -> None:
    sql = "CREATE TABLE t (c STRING)"
    fields = {"c": {"strategy": strategy}}
    whole = generate(40, fields, sql)
    source = input_of({"seed": 1, "plan": [{"limit": 40, "fields": fields, "worker_chunk_size": 7}]}, sql)
    assert read(source.poll(3) + source.poll(37), sql).equals(whole)


@pytest.mark.parametrize("strategy", ["increment", "uniform", "zipf"])
@pytest.mark.parametrize("kind", TYPES)
def test_every_type_can_be_made(kind: str, strategy: str) -> None:
    made = column(kind, {"strategy": strategy}, 200)
    assert None not in made
    assert len(set(map(repr, made))) > 1 or kind in (
        "DECIMAL(18, 18)",
        "DECIMAL(38, 38)",
        "STRUCT<a: INT NOT NULL>",
    )
    some = column(kind, {"strategy": strategy, "null_percentage": 50}, 200)
    assert 60 < some.count(None) < 140
    assert column(kind, {"strategy": strategy, "null_percentage": 100}, 3) == [None] * 3
    assert column(kind, {"strategy": strategy, "values": []}, 3) == [None] * 3


def test_values_may_be_structs_and_null() -> None:
    kind = "STRUCT<a: INT NOT NULL, v: VARIANT>"
    made = column(kind, {"values": [None, {"a": 1, "v": [1, "x"]}], "null_percentage": 10})
    assert made[0] is None
    assert any(made)


def test_seed_table_and_plan_change_the_rows() -> None:
    assert not generate(50, ALL_UNIFORM, seed=1).equals(generate(50, ALL_UNIFORM, seed=2))
    assert not generate(50, ALL_UNIFORM).equals(generate(50, ALL_UNIFORM, WIDE.replace(" t ", " u ")))
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
        ("INT", {"range": [10, 13], "scale": -1}, [10, 12, 11, 10, 12]),
        ("BIGINT", {"scale": -1}, [0, 2**63 - 1, 2**63 - 2, 2**63 - 3, 2**63 - 4]),
        ("BIGINT", {"range": [-(2**63), 2**63 - 1]}, [-(2**63) + i for i in range(5)]),
        ("BIGINT", {"scale": 2**62}, [0, 2**62, 0, 2**62, 0]),
        ("DOUBLE", {"range": [0, 3], "scale": -1}, [0.0, 2.0, 1.0, 0.0, 2.0]),
        ("DECIMAL(38, 18)", {}, [Decimal(i) for i in range(5)]),
        ("DECIMAL(38, 0)", {"range": [10**37, 10**37 + 3]}, [Decimal(10**37 + i % 3) for i in range(5)]),
        ("DECIMAL(4, 2)", {"scale": 0.25}, [Decimal(i) / 4 for i in range(5)]),
        (
            "DATE",
            {"values": [0, "2024-02-29"]},
            [dt.date(1970, 1, 1), dt.date(2024, 2, 29)] * 2 + [dt.date(1970, 1, 1)],
        ),
        ("TIMESTAMP_NTZ", {"values": [1]}, [dt.datetime(1970, 1, 1, 0, 0, 0, 1000)] * 5),
        ("INTERVAL DAY TO SECOND", {"values": ["1 02:00:00.5"]}, [dt.timedelta(1, 7200, 500_000)] * 5),
        (
            "INTERVAL DAY TO SECOND",
            {"range": ["-00:00:01", "00:00:01"], "scale": 500},
            [dt.timedelta(milliseconds=500 * (i % 4) - 1000) for i in range(5)],
        ),
        ("STRUCT<a: INT>", {"values": [{"A": 3}]}, [{"a": 3}] * 5),
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
    assert {10 <= row["place"]["x"] < 20 for row in rows if row["place"]} == {True}
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


@settings(deadline=None)
@given(
    low=st.integers(-(10**38) + 1, 10**38 - 2),
    size=st.integers(1, 10**38),
    step=st.integers(-(10**20), 10**20),
    first=st.integers(0, 2**62),
)
def test_counting_is_exact(low: int, size: int, step: int, first: int) -> None:
    rows = [first, first + 1, first + 7]
    made = counted(low, low + size, step)(np.array(rows, dtype=np.uint64))
    assert [int(number) for number in made] == [low + row * step % size for row in rows]


def test_wide_decimals_are_uniform() -> None:
    made = column("DECIMAL(38, 0)", {"strategy": "uniform", "range": [0, 10**38 - 1]}, 2000)
    assert len(set(made)) == 2000
    assert 900 < sum(number < 5 * 10**37 for number in made) < 1100
    assert 150 < sum(number < 10**37 for number in made) < 250


def test_floats_stay_below_their_end() -> None:
    assert all(
        0 <= number < 1 for number in column("FLOAT", {"strategy": "uniform", "range": [0, 1]}, 65_536)
    )
    close = {"strategy": "uniform", "range": [1, 1.0000001]}
    assert set(column("FLOAT", close, 1000)) == {1.0}


def test_long_text_comes_in_smaller_batches() -> None:
    fields = {"c": {"strategy": "uniform", "range": [20_000, 20_001]}}
    payload = {"seed": 1, "table": "t", "plan": 0, "start": 0, "rows": 1500, "fields": fields}
    schema = pa.schema([pa.field("c", pa.string())])
    assert [batch.num_rows for batch in read_split(Split("datagen", payload), schema)] == [750, 750]
    too_long = {**payload, "fields": {"c": {"strategy": "uniform", "range": [10**8, 10**9]}}}
    with pytest.raises(ConnectorError, match="plan\\[0\\] of table t cannot make rows 0 to 1499"):
        list(read_split(Split("datagen", too_long), schema))


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
        ranks = zipf(10**9, exponent)(words(Origin(1, "t", 0).stream("z"), index))
        assert int(ranks.max()) < 10**9
        assert int(ranks.max()) > 10**5 or exponent > 1


@given(limit=st.integers(1, 2**64), seed=st.integers(0, 2**32))
def test_below_is_the_high_half_of_the_product(limit: int, seed: int) -> None:
    random = words(Origin(seed, "t", 0).stream("x"), np.arange(20, dtype=np.uint64))
    assert [int(n) for n in below(random, limit)] == [(int(word) * limit) >> 64 for word in random]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_strategy_makes_text(strategy: str) -> None:
    made = column("STRING", {"strategy": strategy}, 50)
    assert all(isinstance(text, str) and text for text in made)
    assert len(set(made)) > 1
    assert not any(mark in text for text in made for mark in "{}#^%")


def test_every_strategy_of_the_reference_is_known() -> None:
    reference = """
      word words sentence sentences paragraph paragraphs first_name last_name title suffix name
      name_with_title domain_suffix email username password field position seniority job_title ipv4
      ipv6 ip mac_address user_agent rfc_status_code valid_status_code company_suffix company_name
      buzzword buzzword_middle buzzword_tail catch_phrase bs_verb bs_adj bs_noun bs profession
      industry currency_code currency_name currency_symbol credit_card_number city_prefix
      city_suffix city_name country_name country_code street_suffix street_name time_zone state_name
      state_abbr secondary_address_type secondary_address zip_code post_code building_number
      latitude longitude isbn isbn13 isbn10 phone_number cell_number file_path file_name
      file_extension dir_path
    """
    assert set(STRATEGIES) == set(reference.split())


def digits(text: str) -> list[int]:
    return [10 if character == "X" else int(character) for character in text if character.isalnum()]


def test_card_and_book_numbers_have_their_check_digit() -> None:
    for card in map(digits, column("STRING", {"strategy": "credit_card_number"})):
        doubled = [digit * 2 if place % 2 == 0 else digit for place, digit in enumerate(card)]
        assert len(card) == 16
        assert sum(digit - 9 if digit > 9 else digit for digit in doubled) % 10 == 0
    for book in map(digits, column("STRING", {"strategy": "isbn13"})):
        assert len(book) == 13
        assert sum(digit * (3 if place % 2 else 1) for place, digit in enumerate(book)) % 10 == 0
    for book in map(digits, column("STRING", {"strategy": "isbn10"}, 500)):
        assert len(book) == 10
        assert sum(digit * (10 - place) for place, digit in enumerate(book)) % 11 == 0


def test_addresses_are_of_both_versions() -> None:
    made = [ipaddress.ip_address(text) for text in column("STRING", {"strategy": "ip"})]
    assert {address.version for address in made} == {4, 6}


def test_number_of_words_follows_the_range() -> None:
    assert {len(text.split()) for text in column("STRING", {"strategy": "words", "range": [2, 4]})} == {2, 3}
    assert {len(text) for text in column("STRING", {"strategy": "password", "range": [6, 8]})} == {6, 7}
    assert "" in column("STRING", {"strategy": "sentence", "range": [0, 2]})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"idd": {}}, "plan[0].fields: no column 'idd'; did you mean 'id'?"),
        ({"id": {"strategi": 1}}, "unknown field 'strategi'; did you mean 'strategy'?"),
        (
            {"id": {"strategy": "unifrom"}},
            "id.strategy: expected a strategy, found 'unifrom'; did you mean 'uniform'?",
        ),
        ({"id": {"strategy": "word"}}, "expected increment, uniform, zipf for BIGINT"),
        ({"id": {"null_percentage": 5}}, "the column is NOT NULL"),
        ({"tiny": {"null_percentage": 101}}, "expected 0 to 100, found 101"),
        ({"tiny": {"range": [5, 5]}}, "expected [a, b) with a < b"),
        ({"tiny": {"range": [0, 200]}}, "tiny.range: expected -128 to 128 for TINYINT, found 200"),
        (
            {"tiny": {"range": [0, 100], "scale": 9, "strategy": "uniform"}},
            "expected a range that does not exceed TINYINT times 9, found [0, 100]",
        ),
        ({"tiny": {"e": 0}}, "e: expected a number above 0"),
        (
            {"day": {"range": ["soon", "later"]}},
            "day.range: expected \"2024-01-31\" or days since 1970 for DATE, found 'soon'",
        ),
        ({"day": {"range": ["2024-01-01"]}}, "range: expected a list of two bounds"),
        ({"price": {"range": [0, "x"]}}, "price.range: expected two numbers, found 'x'"),
        ({"ratio": {"range": [2, 1]}}, "ratio.range: expected two numbers [a, b) with a < b"),
        ({"tiny": {"values": ["x"]}}, "tiny.values: 'x' is a str, expected TINYINT"),
        ({"place": {"fields": {"z": {}}}}, "place.fields: no column 'z'"),
        ({"id": {}, "ID": {}}, "expected each column once, found 'ID' in two spellings"),
        ({"id": {"values": [1, None]}}, "id.values: expected values, because the column is NOT NULL"),
        ({"id": {"values": []}}, "id.values: expected values, because the column is NOT NULL"),
        ({"id": {"fields": {"x": {}}}}, "id.fields: expected no such setting for BIGINT"),
        ({"tags": {"key": {"range": [0, 1]}}}, "tags.key: expected no such setting for ARRAY<STRING>"),
        ({"tags": {"value": {"strategi": "word"}}}, "tags.value: unknown field 'strategi'; did you mean"),
        ({"counts": {"key": {"null_percentage": 1}}}, "counts.key.null_percentage: expected 0, because"),
        ({"tiny": {"scale": 0.5}}, "tiny.scale: expected an integer for TINYINT, found 0.5"),
        (
            {"price": {"scale": 0.001}},
            "expected at most 2 digits after the point for DECIMAL(10, 2), found 0.001",
        ),
        ({"price": {"strategy": "uniform", "scale": 0.5}}, "an integer for DECIMAL(10, 2) with uniform"),
        ({"day": {"strategy": "uniform", "scale": 1000}}, "does not exceed DATE times 1000"),
        (
            {"at": {"range": [0, 10**15]}},
            "at.range: expected -62135596800000 to 253402300800000 for TIMESTAMP",
        ),
        (
            {"pause": {"range": ["1h", "2h"]}},
            'expected "12:30:00" or milliseconds for INTERVAL DAY TO SECOND',
        ),
        ({"ratio": {"strategy": "uniform", "scale": 2}}, "does not exceed DOUBLE times 2"),
        ({"name": {"strategy": "quux"}}, "found 'quux'; known: increment, uniform, zipf"),
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
        ({"seed": -1}, "seed: expected an integer of at least 0, found -1"),
        ({"plan": [{"field": {}}]}, "plan[0]: unknown field 'field'; did you mean 'fields'?"),
        (
            {"plan": [{}, {"worker_chunk_size": 0}]},
            "plan[1].worker_chunk_size: expected an integer of at least 1",
        ),
        ({"workers": "4"}, "workers: expected an integer, found '4'"),
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
    source = DatagenInput("g", "t", [Plan({}, 10, 25), Plan({}, None, 3)], 1, clock=lambda: now)
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


def test_a_rate_with_a_chunk_size_hands_out_whole_chunks_and_the_rest() -> None:
    times = [0.0, 0.9, 1.0, 1.9, 2.0, 2.4, 2.5]
    source = DatagenInput("g", "t", [Plan({}, 10, 25, 10)], 1, clock=iter(times).__next__)
    handed_out = [sum(split.rows or 0 for split in source.poll(1000)) for _ in times]
    assert source.ended
    assert handed_out == [0, 0, 10, 0, 10, 0, 5]


def test_rate_does_not_make_up_for_the_time_before_a_restart() -> None:
    now = 0.0
    plans = [Plan({}, 10, 1000)]
    before = DatagenInput("g", "t", plans, 1, clock=lambda: now)
    before.poll(1)
    now = 5.0
    assert sum(split.rows or 0 for split in before.poll(1000)) == 50
    now = 10_000.0
    after = DatagenInput("g", "t", plans, 1, clock=lambda: now)
    after.seek(before.position)
    assert after.poll(1000) == []
    now += 1
    assert [(split.payload["start"], split.rows) for split in after.poll(1000)] == [(50, 10)]


def stored(source: DatagenInput) -> Any:
    """The position as another process finds it."""
    return json.loads(json.dumps(source.position))


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("cut", [0, 1, 30, 31, 49, 50])
def test_another_process_goes_on_where_the_first_stopped(cut: int, seed: int | None) -> None:
    plans = [{"limit": 30, "fields": ALL_UNIFORM}, {"limit": 0}, {"limit": 20, "fields": ALL_UNIFORM}]
    first = input_of({"seed": seed, "plan": plans})
    start = first.position
    head = first.poll(cut)
    second = input_of({"seed": seed, "plan": plans})
    second.seek(stored(first))
    assert second.position == first.position
    tail = second.poll(100)
    assert second.ended
    assert first.ended == (cut == 50)
    again = input_of({"seed": seed, "plan": plans})
    again.seek(start)
    assert read(head + tail).equals(read(again.poll(100)))


def test_the_position_says_what_it_came_from() -> None:
    source = input_of({"seed": 3, "plan": [{"limit": 5}, {}]})
    source.poll(7)
    position = stored(source)
    assert position["seed"] == 3
    assert position["rows"] == [5, 2]
    assert len(set(position["plans"])) == 2


def test_how_fast_rows_come_may_change() -> None:
    source = input_of({"seed": 3, "plan": [{"rate": 5, "fields": {"id": {"range": [0, 9], "scale": 2}}}]})
    changed = {"rate": 7, "worker_chunk_size": 10, "fields": {"id": {"scale": 2, "range": [0, 9]}}}
    input_of({"plan": [changed], "workers": 8, "transaction_size": 10}).seek(source.position)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"seed": 4, "plan": [{"limit": 9}]},
            "the seed is 4, and was 3 .*; set 'seed' to 3 again, or start with",
        ),
        (
            {"seed": 3, "plan": [{"limit": 8}]},
            r"plan\[0\] has the fingerprint \w+, and had \w+ .* 'limit', or start",
        ),
        (
            {"seed": 3, "plan": [{"limit": 9, "fields": {"id": {"scale": 2}}}]},
            r"plan\[0\] has the fingerprint",
        ),
        (
            {"seed": 3, "plan": [{"limit": 9}, {}]},
            "there are 2 plans, and were 1 .*; restore 'plan', or start",
        ),
    ],
)
def test_a_position_of_another_series_is_refused(config: dict[str, Any], said: str) -> None:
    position = input_of({"seed": 3, "plan": [{"limit": 9}]}).position
    source = input_of(config)
    with pytest.raises(ConnectorError, match=f"connector gen: {said}") as caught:
        source.seek(position)
    assert "empty storage directory" in str(caught.value)


def test_a_position_of_another_connector_is_refused() -> None:
    with pytest.raises(ConnectorError, match=r"connector gen: .* is not a position of a datagen connector"):
        input_of({}).seek({"files": 1})


PAGE = Path(__file__).parent.parent / "docs" / "reference" / "datagen.md"


def test_the_page_lists_every_strategy_with_its_first_value() -> None:
    listed = dict(
        re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text().split("All others")[1], re.MULTILINE)
    )
    assert set(listed) == set(STRATEGIES)
    for strategy, example in listed.items():
        assert example.strip("`") in ("", *column("STRING", {"strategy": strategy}, 1))


def example_rows() -> list[str]:
    """The rows of the page's example, as JSON."""
    (sql,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    table = table_of(sql)
    rows = read(create_input(table.connectors[0], table).poll(100), sql).drop_columns("_op")
    return [json.dumps(row, default=str, ensure_ascii=False) for row in rows.to_pylist()]


def test_the_example_of_the_page_makes_the_rows_it_shows() -> None:
    assert "```text\n" + "\n".join(example_rows()) + "\n```" in PAGE.read_text()


def test_intervals_of_months_are_refused_by_name() -> None:
    with pytest.raises(ConnectorError, match="cannot fill column 'c' of type INTERVAL YEAR TO MONTH"):
        input_of({}, "CREATE TABLE t (c INTERVAL YEAR TO MONTH)")


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
    split = Split(
        "datagen", {"seed": 1, "table": "t", "plan": 0, "start": 5, "rows": 100_000, "fields": {}}, 100_000
    )
    assert [batch.num_rows for batch in read_split(split, schema)] == [65_536, 34_464]
