"""What insert and delete accept as rows, and what they say about rows that do not fit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import to_arrow
from penstock.errors import BadRowError
from penstock.sql import Table, parse_program

KEYED = """
CREATE TABLE t (
  id BIGINT PRIMARY KEY, small TINYINT, price DECIMAL(5, 2), ratio DOUBLE, ratio4 FLOAT, name STRING NOT NULL,
  ok BOOLEAN, day DATE, at TIMESTAMP, local_at TIMESTAMP_NTZ, raw BINARY,
  tags ARRAY<STRING>, counts MAP<STRING, INT>, place STRUCT<x: INT, y: STRING>, code VARCHAR(3), extra VARIANT
)
"""
BAG = "CREATE TABLE b (k INT NOT NULL, v STRING, w INT DEFAULT 7)"
UTC = dt.UTC


def table_of(sql: str) -> Table:
    return parse_program(sql).tables[0]


def convert(rows: Any, sql: str = KEYED, *, delete: bool = False, **defaults: Any) -> pa.Table:
    table = table_of(sql)
    schema = to_arrow_schema(table.schema, timezone="UTC")
    found = to_arrow(table, schema, rows, delete=delete, defaults=defaults)
    assert found.column_names == [*schema.names, "_op"]
    assert found.schema.types == [*schema.types, pa.int8()]
    found.validate(full=True)
    return found


def value(name: str, given: Any) -> Any:
    return convert([{"id": 1, "name": "n", name: given}])[name][0].as_py()


def refusal(rows: Any, sql: str = KEYED, *, delete: bool = False, **defaults: Any) -> str:
    with pytest.raises(BadRowError) as caught:
        convert(rows, sql, delete=delete, **defaults)
    return str(caught.value)


def misfit(name: str, given: Any) -> str:
    return refusal([{"id": 0, "name": "n"}, {"id": 1, "name": "n", name: given}])


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("small", -128, -128),
        ("small", np.int64(3), 3),
        ("price", Decimal("1.230"), Decimal("1.23")),
        ("price", 12, Decimal("12.00")),
        ("price", 9.99, Decimal("9.99")),
        ("ratio", 3, 3.0),
        ("ratio", np.float32(0.5), 0.5),
        ("ratio4", 0.5, 0.5),
        ("name", "", ""),
        ("ok", np.bool_(True), True),
        ("day", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ("at", dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 1, 12, tzinfo=UTC)),
        (
            "at",
            dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            dt.datetime(2024, 1, 1, 10, tzinfo=UTC),
        ),
        ("at", pd.Timestamp("2024-01-01T12:00:00.000001999"), dt.datetime(2024, 1, 1, 12, 0, 0, 1, UTC)),
        ("local_at", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1)),
        ("raw", bytearray(b"\x00\xff"), b"\x00\xff"),
        ("tags", ("a", None), ["a", None]),
        ("tags", np.array(["a", "b"]), ["a", "b"]),
        ("counts", {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        ("counts", [("a", 1)], [("a", 1)]),
        ("place", {"X": 1}, {"x": 1, "y": None}),
        ("place", (1, "s"), {"x": 1, "y": "s"}),
        ("code", "abc", "abc"),
        (
            "extra",
            {"a": 1},
            {"value": b"\x02\x01\x00\x00\x02\x0c\x01", "metadata": b"\x01\x01\x00\x01a"},
        ),
    ],
)
def test_python_value_is_kept(name: str, given: Any, expected: Any) -> None:
    assert value(name, given) == expected


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("small", 128, "128 is out of range for TINYINT (-128 to 127)"),
        ("id", 2**63, "out of range for BIGINT"),
        ("small", True, "True is a bool, expected TINYINT; true and false are not numbers"),
        ("small", "7", "'7' is a str, expected TINYINT; text is not converted to a number"),
        ("small", 1.0, "1.0 is a float, expected TINYINT"),
        ("price", Decimal(1000), "out of range for DECIMAL(5, 2)"),
        ("price", Decimal("1.234"), "more than 2 digits after the point"),
        ("price", Decimal("NaN"), "is not a number that DECIMAL(5, 2) can hold"),
        ("price", "1", "text is not converted to a number"),
        ("ratio", "0.5", "expected DOUBLE"),
        ("ratio", True, "expected DOUBLE"),
        ("ratio", 10**400, "out of range for DOUBLE"),
        ("ratio4", 1e300, "out of range for FLOAT"),
        ("name", 5, "5 is an int, expected STRING"),
        ("name", None, "is NULL, and the column is NOT NULL"),
        ("name", "\ud800", "not valid Unicode"),
        ("ok", 1, "1 is an int, expected BOOLEAN"),
        ("day", "2024-01-01", "is a str, expected DATE"),
        ("day", dt.datetime(2024, 1, 1), "is a datetime, expected DATE"),
        ("at", dt.date(2024, 1, 1), "is a date, expected TIMESTAMP"),
        ("local_at", dt.datetime(2024, 1, 1, tzinfo=UTC), "has a time zone"),
        ("raw", "text", "is a str, expected BINARY"),
        ("tags", "abc", "is a str, expected ARRAY<STRING>"),
        ("tags", ["a", 3], "column 'tags[1]' ARRAY<STRING>: 3 is an int, expected STRING"),
        ("counts", {"a": "b"}, "column 'counts['a']'"),
        ("counts", {None: 1}, "is NULL, which the type does not allow here"),
        ("place", {"z": 1}, "has a field 'z'"),
        ("place", (1,), "is a tuple, expected STRUCT<x: INT, y: STRING>"),
        ("place", {"x": "1"}, "column 'place.x'"),
        ("extra", object, "cannot be written as JSON, expected VARIANT"),
    ],
)
def test_value_that_does_not_fit_is_named(name: str, given: Any, said: str) -> None:
    text = misfit(name, given)
    assert said in text
    assert f"table t, row 1 (counting from 0), column '{name}" in text


def test_nan_stays_nan() -> None:
    assert np.isnan(value("ratio", float("nan")))
    assert np.isnan(value("ratio4", float("nan")))


def test_first_bad_row_is_named_whatever_its_column() -> None:
    rows = [{"id": 1, "name": "a"}, {"id": "x", "name": "b"}, {"id": 3, "name": 4, "small": 999}]
    assert "row 1 (counting from 0), column 'id'" in refusal(rows)


def test_column_names_are_case_insensitive() -> None:
    found = convert([{"ID": 1, "Name": "a"}, {"id": 2, "NAME": "b"}])
    assert found["id"].to_pylist() == [1, 2]
    assert found["name"].to_pylist() == ["a", "b"]


def test_unknown_column_names_the_nearest() -> None:
    text = refusal([{"id": 1, "name": "a"}, {"id": 1, "nmae": "a"}])
    assert "row 1 (counting from 0)" in text
    assert "no column 'nmae'; did you mean 'name'?" in text


def test_column_given_twice_is_refused() -> None:
    assert "the column 'id' is given twice" in refusal([{"id": 1, "ID": 2, "name": "a"}])
    assert "given twice" in refusal(pa.table([[1], [2]], names=["id", "id"]))
    assert "given twice" in refusal(pd.DataFrame([[1, 2]], columns=["id", "ID"]))


def test_missing_columns_take_their_default_or_null() -> None:
    found = convert([{"k": 1}, {"k": 2, "w": None}, {"v": "x", "k": 3}], BAG, w=7)
    assert found.to_pylist() == [
        {"k": 1, "v": None, "w": 7, "_op": 1},
        {"k": 2, "v": None, "w": None, "_op": 1},
        {"k": 3, "v": "x", "w": 7, "_op": 1},
    ]
    assert convert(pa.table({"k": pa.array([1, 2], pa.int32())}), BAG, w=7)["w"].to_pylist() == [7, 7]


def test_missing_not_null_column_is_named() -> None:
    text = refusal([{"k": 1}, {"v": "x"}], BAG, w=7)
    assert "row 1 (counting from 0), column 'k' INT: is missing; it is NOT NULL and has no default" in text
    assert "column 'k' INT: is missing" in refusal(pa.table({"v": ["x"]}), BAG, w=7)


def test_delete_by_key_needs_only_the_key() -> None:
    found = convert([{"id": 1}, {"id": 2, "name": "ignored", "small": "even when wrong"}], delete=True)
    assert found.select(["id", "name", "small", "_op"]).to_pylist() == [
        {"id": 1, "name": None, "small": None, "_op": -1},
        {"id": 2, "name": None, "small": None, "_op": -1},
    ]
    assert "deleting needs all columns of the key" in refusal([{"name": "a"}], delete=True)
    assert "NOT NULL" in refusal([{"id": None}], delete=True)


def test_delete_without_key_needs_the_whole_row() -> None:
    assert convert([{"k": 1, "v": None, "w": 3}], BAG, delete=True)["_op"].to_pylist() == [-1]
    text = refusal([{"k": 1, "v": None}], BAG, delete=True, w=7)
    assert "column 'w' INT: is missing; deleting from a table without a key needs the whole row" in text


def test_no_rows_are_fine() -> None:
    assert convert([]).num_rows == 0
    assert convert(pd.DataFrame({"id": []})).num_rows == 0


@pytest.mark.parametrize("rows", [{"id": 1}, "text", 5, None])
def test_something_else_than_rows_is_refused(rows: Any) -> None:
    assert "expected a list of dicts" in refusal(rows)


def test_row_that_is_not_a_dict_is_named() -> None:
    assert "row 1 (counting from 0): is a tuple, expected a dict" in refusal(
        [{"id": 1, "name": "a"}, (1, "a")]
    )


def test_generator_of_dicts_is_accepted() -> None:
    assert convert({"id": i, "name": "a"} for i in range(3)).num_rows == 3


def test_arrow_columns_are_converted_without_loss() -> None:
    given = pa.table(
        {
            "id": pa.array([1, 2], pa.uint8()),
            "name": pa.array(["a", "b"]).dictionary_encode(),
            "price": pa.array([1, None], pa.int64()),
            "ratio": pa.array([0.5, float("nan")], pa.float32()),
            "at": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "Europe/Berlin")),
            "local_at": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("s")),
            "day": pa.array([dt.date(2024, 1, 1), None], pa.date64()),
            "tags": pa.array([["a"], None], pa.large_list(pa.large_string())),
            "ok": pa.nulls(2),
        }
    )
    rows = convert(given).to_pylist()
    assert rows[0]["price"] == Decimal("1.00")
    assert rows[0]["at"] == dt.datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert rows[0]["local_at"] == dt.datetime(2024, 1, 1)
    assert rows[0]["day"] == dt.date(2024, 1, 1)
    assert rows[0]["tags"] == ["a"]
    assert rows[0]["ok"] is None
    assert np.isnan(rows[1]["ratio"])
    assert convert(given.to_batches()[0]).num_rows == 2


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("small", pa.array([1, 300]), "row 1 (counting from 0), column 'small' TINYINT: 300 is out of range"),
        ("small", pa.array([None, "7"]), "row 1 (counting from 0), column 'small' TINYINT: '7' is a str"),
        ("small", pa.array([1.5, 2.0]), "row 0 (counting from 0), column 'small' TINYINT: 1.5 is a float"),
        ("small", pa.array([True, True]), "True is a bool"),
        ("name", pa.array([1, 2]), "1 is an int, expected STRING"),
        ("name", pa.array(["a", None]), "row 1 (counting from 0), column 'name' STRING: is NULL"),
        ("price", pa.array([Decimal("1.00"), Decimal("1.234")]), "row 1"),
        (
            "price",
            pa.array([1, 100_000]),
            "row 1 (counting from 0), column 'price' DECIMAL(5, 2): 100000 is out",
        ),
        ("ratio4", pa.array([1.0, 1e300]), "row 1 (counting from 0), column 'ratio4' FLOAT: 1e+300 is out"),
        ("local_at", pa.array([0, 0], pa.timestamp("us", "UTC")), "expected TIMESTAMP_NTZ"),
        ("day", pa.array([0, 0], pa.timestamp("us")), "expected DATE"),
    ],
)
def test_arrow_value_that_does_not_fit_is_named(name: str, column: pa.Array, said: str) -> None:
    given = {"id": pa.array([1, 2]), "name": pa.array(["a", "b"])} | {name: column}
    assert said in refusal(pa.table(given))


def test_pandas_nan_is_null_except_in_float_columns() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "name": ["a", "b"],
            "small": [1.0, np.nan],
            "ratio": [0.5, np.nan],
            "price": [1.25, np.nan],
            "ok": pd.array([True, None], dtype="boolean"),
            "at": pd.to_datetime(["2024-01-01T00:00:00Z", None]),
            "day": pd.to_datetime(["2024-01-01", None]),
            "code": ["x", np.nan],
            "tags": [["a"], None],
        }
    )
    first, second = convert(frame).to_pylist()
    assert (first["small"], first["price"], first["ok"]) == (1, Decimal("1.25"), True)
    assert (first["at"], first["day"]) == (dt.datetime(2024, 1, 1, tzinfo=UTC), dt.date(2024, 1, 1))
    assert first["tags"] == ["a"]
    assert np.isnan(second.pop("ratio"))
    assert {k: v for k, v in second.items() if v is not None} == {"id": 2, "name": "b", "_op": 1}


def test_pandas_value_that_does_not_fit_is_named() -> None:
    frame = pd.DataFrame({"id": [1, 2], "name": ["a", "b"]})
    assert "1.5 is a float" in refusal(frame.assign(small=[1.0, 1.5]))
    assert "row 1" in refusal(frame.assign(name=["a", 3]))
    assert "row 1" in refusal(frame.assign(day=pd.to_datetime(["2024-01-01 00:00", "2024-01-01 05:00"])))
    assert "expected TINYINT" in refusal(frame.assign(small=["1", "2"]))


def test_large_input_is_converted_by_column() -> None:
    import time

    rows = [{"id": i, "name": "n", "ratio": float(i), "price": Decimal("1.50")} for i in range(100_000)]
    started = time.perf_counter()
    assert convert(rows).num_rows == 100_000
    assert time.perf_counter() - started < 5  # about 0.15 s; a loop over cells in Python takes far longer
