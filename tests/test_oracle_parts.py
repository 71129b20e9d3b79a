"""The oracle itself: the case reader, the model, the histories and the comparison. No Spark."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from tests.oracle.cases import FIXTURES, load_cases, load_queries, parse_cases
from tests.oracle.compare import difference
from tests.oracle.domains import ROW_MAKERS
from tests.oracle.history import random_history
from tests.oracle.model import Action, Model, Operation, TableModel, TableSchema

NAN = float("nan")
BAG = TableSchema("u", StructType([StructField("k", IntegerType()), StructField("x", DoubleType())]))
KEYED = TableSchema(
    "t", StructType([StructField("id", IntegerType(), False), StructField("g", StringType())]), ("id",)
)


def test_reads_a_case_with_helper_views() -> None:
    text = "-- name: two views\nCREATE LOCAL VIEW a AS SELECT 1;\nSELECT ';'\nFROM a;\n"
    first, second = parse_cases("views", f"{text}\n-- name: next\nSELECT 2;\n")
    assert first.helper_names == ("a",)
    assert first.query == "SELECT ';'\nFROM a"
    assert first.temporary_helpers == ("CREATE OR REPLACE TEMPORARY VIEW a AS SELECT 1",)
    assert first.statements.endswith("CREATE VIEW views_two_views AS\nSELECT ';'\nFROM a;\n")
    assert (second.name, second.query) == ("next", "SELECT 2")


def test_names_are_unique() -> None:
    cases = load_cases()
    names = [name for case in cases for name in (case.view, *case.helper_names)]
    assert [name for name, count in Counter(name.lower() for name in names).items() if count > 1] == []


def test_benchmarks_are_complete() -> None:
    assert [case.name for case in load_queries(FIXTURES / "tpch")] == [f"q{n:02d}" for n in range(1, 23)]
    assert [case.name for case in load_queries(FIXTURES / "nexmark")] == [f"q{n:02d}" for n in range(23)]


def test_bag_counts_duplicates_and_ignores_strangers() -> None:
    bag = TableModel(BAG)
    for row in ({"k": 1, "x": NAN}, {"k": 1, "x": float("nan")}, {"k": 1, "x": -0.0}):
        bag.insert(row)
    bag.delete({"k": 1, "x": NAN})
    bag.delete({"k": 1, "x": 0.0})
    bag.delete({"k": 2, "x": None})
    assert len(bag.rows) == 1


def test_last_write_of_a_key_wins() -> None:
    model = Model([KEYED])
    model.apply(
        (Operation(Action.INSERT, "t", ({"id": 1, "g": "a"}, {"id": 2, "g": "a"}, {"id": 1, "g": "b"})),)
    )
    model.apply((Operation(Action.DELETE, "t", ({"id": 2},)),))
    assert model.tables["t"].rows == [{"id": 1, "g": "b"}]
    model.apply(model.deletion_of_all())
    assert model.tables["t"].rows == []


def test_a_seed_makes_the_same_history_again() -> None:
    fields = [StructField(name, IntegerType()) for name in ROW_MAKERS["v"](Random(0))]
    table = TableSchema("v", StructType(fields))
    first, again, other = (
        random_history([table], ROW_MAKERS, seed=seed, transactions=6) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.transactions != other.transactions


def test_equal_up_to_order_rounding_and_zeros() -> None:
    left = pa.table({"k": [1, 1, 2], "x": [0.1 + 0.2, NAN, -0.0]})
    right = pa.table({"k": [2, 1, 1], "x": [0.0, NAN, 0.3]})
    assert difference(left, right) is None


def test_nested_values_and_maps_without_order() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.float64())), ("l", pa.list_(pa.float64()))])
    left = pa.table({"s": pa.array([{"m": [("a", 1.0), ("b", 2.0)], "l": [NAN]}, None], kind)})
    right = pa.table({"s": pa.array([None, {"m": [("b", 2.0), ("a", 1.0)], "l": [NAN]}], kind)})
    assert difference(left, right) is None


def test_difference_is_readable() -> None:
    found = difference(pa.table({"k": [1, 1], "g": ["a", "a"]}), pa.table({"k": [1, 2], "g": ["a", None]}))
    assert (
        found == "columns: k, g\n2 rows, expected 2\nmissing (1):\n  (2, None)\nunexpected (1):\n  (1, 'a')"
    )


def test_duplicates_count() -> None:
    assert difference(pa.table({"x": [0.5, 0.5]}), pa.table({"x": [0.5]})) is not None
    assert difference(pa.table({"x": [0.5]}), pa.table({"x": [0.5 + 1e-6]})) is not None


def test_names_and_types_must_be_equal() -> None:
    assert difference(pa.table({"a": [1]}), pa.table({"b": [1]})) == "columns are a: int64, expected b: int64"
    narrow = pa.table({"a": pa.array([1], pa.int32())})
    assert difference(narrow, pa.table({"a": [1]})) == "columns are a: int32, expected a: int64"
