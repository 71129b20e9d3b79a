"""delta_table_input: a snapshot of a table and its changes, from any position, the same rows every time."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors import Input, create_input, read_split
from penstock.connectors.input import delta
from penstock.connectors.interface import BadRecord, Split
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, Table, parse_program
from tests.oracle.history import seed_of_run

PLAIN = "CREATE TABLE t (id BIGINT, name STRING)"
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_LOOK_SECONDS", 0.0)


def table_of(sql: str) -> Table:
    return parse_program(sql).tables[0]


def source(path: Path | str, mode: str, sql: str = PLAIN, **config: Any) -> Input:
    entry = {"transport": {"name": "delta_table_input", "config": {"uri": str(path), "mode": mode, **config}}}
    return create_input(Connector("in", entry), table_of(sql))


def read(splits: list[Split], sql: str = PLAIN, rejected: list[BadRecord] | None = None) -> list[Row]:
    """The rows, each with its op at the end."""
    schema = to_arrow_schema(table_of(sql).schema, timezone="UTC")
    rows: list[Row] = []
    for split in splits:
        split = Split(split.source, json.loads(json.dumps(dict(split.payload))), split.rows)
        keep = {} if rejected is None else {"reject": rejected.append}
        for batch in read_split(split, schema, **keep):
            assert batch.schema.names == [*schema.names, "_op"]
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return rows


def poll_all(reader: Input) -> list[Split]:
    splits: list[Split] = []
    while found := reader.poll(1000):
        splits += found
    return splits


def contents(rows: list[Row], start: Counter[Row] | None = None) -> Counter[Row]:
    """What the rows add up to; the last column is the op."""
    total = Counter(start or {})
    for row in rows:
        total[row[:-1]] += row[-1]
    return Counter({row: count for row, count in total.items() if count})


def rows_of(*ids: int, name: str = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())})


def now(path: Path) -> Counter[Row]:
    """What the table holds, as deltalake reads it."""
    found = DeltaTable(path).to_pyarrow_table().select(["id", "name"]).to_pylist()
    return Counter(tuple(row.values()) for row in found)


# -- modes ----------------------------------------------------------------------------------------


def test_a_snapshot_is_read_and_ends(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows_of(1, 2))
    write_deltalake(tmp_path, rows_of(3), mode="append")
    reader = source(tmp_path, "snapshot")
    assert not reader.ended
    first = reader.poll(1)
    assert len(first) == 1
    write_deltalake(tmp_path, rows_of(4), mode="append")
    rows = read(first + poll_all(reader))
    assert reader.ended
    assert sorted(rows) == [(1, "x", 1), (2, "x", 1), (3, "x", 1)]


@pytest.mark.parametrize("configuration", [{}, CHANGE_FEED])
def test_changes_are_followed(tmp_path: Path, configuration: dict[str, str]) -> None:
    write_deltalake(tmp_path, rows_of(1, 2, 3), configuration=configuration)
    reader = source(tmp_path, "snapshot_and_follow")
    state = contents(read(poll_all(reader)))
    table = DeltaTable(tmp_path)
    for change in (
        lambda: table.update(predicate="id = 2", updates={"name": "'y'"}),
        lambda: table.delete("id = 1"),
        lambda: write_deltalake(table, rows_of(4, 4), mode="append"),
        lambda: write_deltalake(table, rows_of(9), mode="overwrite"),
    ):
        change()
        splits = poll_all(reader)
        state = contents(read(splits), state)
        assert state == now(tmp_path)
        assert reader.poll(10) == []
        if configuration and change.__code__.co_names[0] == "update":
            assert len(read(splits)) == 2  # the feed has the two images, not the whole file
    assert not reader.ended


def test_compaction_changes_nothing(tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(tmp_path, rows_of(number), mode="append")
    reader = source(tmp_path, "follow")
    assert reader.poll(10) == []
    DeltaTable(tmp_path).optimize.compact()
    assert reader.poll(10) == []
    assert reader.position["version"] == 4


def test_follow_begins_after_its_version_and_ends_with_the_last(tmp_path: Path) -> None:
    for number in range(6):
        write_deltalake(tmp_path, rows_of(number), mode="append")
    reader = source(tmp_path, "follow", version=1, end_version=3)
    assert read(poll_all(reader)) == [(2, "x", 1), (3, "x", 1)]
    assert reader.ended
    reader = source(tmp_path, "snapshot_and_follow", version=1, end_version=2)
    assert sorted(read(poll_all(reader))) == [(0, "x", 1), (1, "x", 1), (2, "x", 1)]
    assert reader.ended


def test_a_version_by_time(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows_of(1))
    first = DeltaTable(tmp_path).history()[0]["timestamp"]
    moment = dt.datetime.fromtimestamp((first + 500) / 1000, dt.UTC)
    while dt.datetime.now(dt.UTC) < moment + dt.timedelta(milliseconds=500):
        pass
    write_deltalake(tmp_path, rows_of(2), mode="append")
    assert read(poll_all(source(tmp_path, "snapshot", datetime=moment.isoformat()))) == [(1, "x", 1)]


def test_a_version_with_a_key_deletes_before_it_inserts(tmp_path: Path) -> None:
    keyed = "CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING)"
    write_deltalake(tmp_path, rows_of(1, 2), configuration=CHANGE_FEED)
    reader = source(tmp_path, "follow", keyed)
    reader.poll(1)
    DeltaTable(tmp_path).update(updates={"id": "id + 2"})
    ops = [row[-1] for row in read(reader.poll(100), keyed)]
    assert ops == [-1, -1, 1, 1]


def test_cdc_reads_a_table_of_changes_in_order(tmp_path: Path) -> None:
    def log(*changes: tuple[int, str, int, str]) -> None:
        columns = zip(*changes, strict=True)
        names = ["id", "name", "at", "op"]
        write_deltalake(tmp_path, pa.table(dict(zip(names, map(list, columns), strict=True))), mode="append")

    log((1, "old", 0, "i"))
    reader = source(
        tmp_path, "cdc", cdc_delete_filter="op = 'd'", cdc_order_by="at DESC, id", filter="id < 9"
    )
    assert reader.poll(10) == []
    log((1, "a", 3, "i"), (9, "a", 2, "i"), (2, "b", 1, "d"), (3, "c", 2, "u"))
    log((4, "d", 1, None))
    rows = read(reader.poll(1000))
    assert rows == [(1, "a", 1), (3, "c", 1), (2, "b", -1), (4, "d", 1)]


# -- positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", [{}, CHANGE_FEED])
def test_any_position_goes_on_with_the_same_rows(
    tmp_path: Path, configuration: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "_LARGE", 0)  # every row group is a part of its own
    seed = seed_of_run()
    random_ = random.Random(seed)
    write_deltalake(tmp_path, rows_of(*range(5)), configuration=configuration)
    for _ in range(3):
        write_deltalake(tmp_path, rows_of(*range(random_.randint(1, 5))), mode="append")
    reader = source(tmp_path, "snapshot_and_follow")
    state: Counter[Row] = Counter()
    for number in range(12):
        kind = random_.choice(["insert", "update", "delete", "nothing"])
        table = DeltaTable(tmp_path)
        if kind == "insert":
            write_deltalake(table, rows_of(*random_.choices(range(8), k=3)), mode="append")
        elif kind == "update":
            table.update(predicate=f"id = {random_.randrange(8)}", updates={"name": f"'{number}'"})
        elif kind == "delete":
            table.delete(f"id = {random_.randrange(8)}")
        splits = reader.poll(random_.randint(1, 10))
        rows = read(splits)
        assert read(splits) == rows, f"seed {seed}"
        state = contents(rows, state)
        if random_.random() < 0.6:
            position = json.loads(json.dumps(reader.position))
            reader = source(tmp_path, "snapshot_and_follow")
            reader.seek(position)
    state = contents(read(poll_all(reader)), state)
    assert state == now(tmp_path), f"seed {seed}"


def test_a_poll_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write_deltalake(tmp_path, rows_of(number), mode="append")
    reader = source(tmp_path, "snapshot")
    real, calls = delta.DeltaInput._parts, iter([False, True])

    def parts(self: Any, file: Any) -> Any:
        if next(calls, False):
            raise OSError("No space left on device")
        return real(self, file)

    monkeypatch.setattr(delta.DeltaInput, "_parts", parts)
    with pytest.raises(UnreachableError):
        reader.poll(100)
    assert len(read(reader.poll(100))) == 3


def test_a_vacuumed_file_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows_of(1, 2))
    reader = source(tmp_path, "snapshot_and_follow")
    splits = reader.poll(100)
    table = DeltaTable(tmp_path)
    table.delete("id = 1")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    for found in (splits, reader.poll(100)):
        with pytest.raises(ConnectorError, match="is gone: it was vacuumed"):
            read(found)


def test_a_log_that_was_cut_is_named(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path, rows_of(number), mode="append")
    reader = source(tmp_path, "follow", version=0)
    reader.seek({"version": 0, "file": None, "part": 0})
    reader._table = DeltaTable(tmp_path)  # type: ignore[attr-defined]
    reader._table.create_checkpoint()  # type: ignore[attr-defined]
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(ConnectorError, match=r"version 1 of .* is no longer in its log"):
        reader.poll(10)


# -- rows -----------------------------------------------------------------------------------------


def test_values_of_every_type(tmp_path: Path) -> None:
    sql = """CREATE TABLE t (tiny TINYINT, big BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, s STRING, raw BINARY,
      price DECIMAL(38, 10), day DATE, at TIMESTAMP, local_at TIMESTAMP_NTZ, tags ARRAY<INT>,
      marks MAP<STRING, BIGINT>, point STRUCT<x: INT>)"""
    values: list[Any] = [
        -128, 2**63 - 1, 1.5, float("-inf"), True, "ä", b"\x00", Decimal("-1.0000000001"), dt.date(1, 1, 1),
        dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC), dt.datetime(2024, 1, 2, 3, 4, 5, 6), [1, None],
        [("a", 1)], {"x": None},
    ]  # fmt: skip
    schema = to_arrow_schema(table_of(sql).schema, timezone="UTC")
    arrays = [pa.array([value, None], field.type) for value, field in zip(values, schema, strict=True)]
    write_deltalake(tmp_path, pa.table(arrays, schema=schema))
    assert read(poll_all(source(tmp_path, "snapshot", sql)), sql) == [
        (*values, 1),
        (*[None] * len(values), 1),
    ]


def test_partitions_and_columns_that_came_later(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (id BIGINT, day DATE, kind STRING, extra INT DEFAULT 5, mine INT DEFAULT 7)"
    first = pa.table({"id": [1, 2], "day": [dt.date(2024, 1, 1), None], "kind": ["a b/ü", "x=1"]})
    write_deltalake(tmp_path, first, partition_by=["day", "kind"])
    second = pa.table(
        {"id": [3], "day": [dt.date(2024, 1, 2)], "kind": ["c"], "extra": pa.array([9], pa.int32())}
    )
    reader = source(tmp_path, "snapshot_and_follow", sql)
    schema = to_arrow_schema(table_of(sql).schema, timezone="UTC")
    splits = poll_all(reader)
    write_deltalake(tmp_path, second, mode="append", schema_mode="merge")
    DeltaTable(tmp_path).delete("id = 1")
    splits += poll_all(reader)

    def rows(splits: list[Split]) -> list[Row]:
        defaults = {"extra": 5, "mine": 7}
        found = [row for s in splits for b in read_split(s, schema, defaults) for row in b.to_pylist()]
        return [tuple(row.values()) for row in found]

    two, three = (2, None, "x=1", 5, 7), (3, dt.date(2024, 1, 2), "c", 9, 7)
    assert (1, dt.date(2024, 1, 1), "a b/ü", 5, 7, 1) in rows(splits)
    assert contents(rows(splits)) == Counter([two, three])
    assert contents(rows(poll_all(source(tmp_path, "snapshot", sql)))) == Counter([two, three])


def test_rows_that_do_not_fit_are_rejected_one_by_one(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (id TINYINT, name STRING)"
    write_deltalake(tmp_path, rows_of(1, 1000, 2))
    rejected: list[BadRecord] = []
    rows = read(poll_all(source(tmp_path, "snapshot", sql)), sql, rejected)
    assert rows == [(1, "x", 1), (2, "x", 1)]
    assert "row 2" in rejected[0].position
    assert "column 'id': 1000 is out of range" in rejected[0].reason


def test_timestamp_column_orders_the_files_of_a_snapshot(tmp_path: Path) -> None:
    for number in (5, 3, 9, 1):
        write_deltalake(tmp_path, rows_of(number), mode="append")
    rows = read(poll_all(source(tmp_path, "snapshot", timestamp_column="ID")))
    assert [row[0] for row in rows] == [1, 3, 5, 9]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id > 2", [3, 4]),
        ("NOT (id > 2)", [1, 2]),
        ("id = 1 OR day >= '2024-01-03'", [1, 3, 4]),
        ("day BETWEEN DATE '2024-01-02' AND DATE '2024-01-03'", [2, 3]),
        ("id IN (1, 4) AND day IS NOT NULL", [1, 4]),
        ("note IS NULL", [2]),
        ("note <> 'a'", [3, 4]),
        ("NOT note = 'a'", [3, 4]),
        ("note LIKE 'b%'", [3]),
        ("price < 2.5 AND id > -1", [1, 2]),
        ("at > TIMESTAMP '2024-01-02 00:00:00'", [3, 4]),
        ("flag", [1, 3]),
        ("flag = false", [2, 4]),
    ],
)
def test_filters(tmp_path: Path, condition: str, expected: list[int]) -> None:
    days = [dt.date(2024, 1, day) for day in range(1, 5)]
    write_deltalake(
        tmp_path,
        pa.table(
            {
                "id": pa.array([1, 2, 3, 4], pa.int64()),
                "name": ["x"] * 4,
                "day": days,  # the table has none of these columns
                "note": ["a", None, "b1", "c"],
                "price": pa.array(
                    [Decimal("1.5"), Decimal(2), Decimal("2.5"), Decimal(9)], pa.decimal128(9, 2)
                ),
                "at": pa.array([dt.datetime(d.year, d.month, d.day, tzinfo=dt.UTC) for d in days]),
                "flag": [True, False, True, False],
            }
        ),
        partition_by=["day"],
    )
    for field in ("filter", "snapshot_filter"):
        rows = read(poll_all(source(tmp_path, "snapshot", **{field: condition})))
        assert sorted(row[0] for row in rows) == expected


def test_a_snapshot_filter_is_for_the_snapshot_only(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows_of(1, 2, 3))
    reader = source(tmp_path, "snapshot_and_follow", snapshot_filter="id > 1", filter="id < 3")
    assert read(poll_all(reader)) == [(2, "x", 1)]
    write_deltalake(tmp_path, rows_of(1, 5), mode="append")
    assert read(poll_all(reader)) == [(1, "x", 1)]


# -- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "config", "said"),
    [
        ("tail", {}, "expected one of snapshot, follow, snapshot_and_follow, cdc, found 'tail'"),
        ("snapshot", {"end_version": 3}, "end_version: only for the modes follow, snapshot_and_follow, cdc"),
        (
            "follow",
            {"snapshot_filter": "a"},
            "snapshot_filter: only for the modes snapshot, snapshot_and_follow",
        ),
        ("follow", {"cdc_order_by": "a"}, "cdc_order_by: only for the modes cdc"),
        ("cdc", {"cdc_order_by": "a + 1"}, "expected columns with ASC or DESC"),
        ("snapshot", {"version": 1, "datetime": "x"}, "give only one of version and datetime"),
        ("snapshot", {"filter": "a >"}, "filter: 'a >' is not a condition in SQL"),
        ("snapshot", {"transaction_mode": "always"}, "transaction_mode: not supported"),
        ("snapshot", {"regoin": "x"}, "unknown field 'regoin'"),
    ],
)
def test_wrong_configuration_is_named(tmp_path: Path, mode: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError, match="connector in") as caught:
        source(tmp_path, mode, **config)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"filter": "nope = 1"}, "there is no column 'nope'; there are id, name"),
        ({"filter": "abs(id) = 1"}, r"'ABS\(id\)' is not supported; only columns and constants"),
        ({"filter": "id = 'one'"}, "'one' cannot be read as BIGINT"),
        ({"filter": "name > 1"}, "compares different types"),
        ({"timestamp_column": "nope"}, "has no column 'nope'"),
        ({"version": 7}, "cannot read the Delta table"),
    ],
)
def test_what_does_not_fit_the_table_is_named(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    write_deltalake(tmp_path, rows_of(1))
    with pytest.raises(ConnectorError, match=said):
        source(tmp_path, "snapshot", **config).poll(10)


def test_secrets_are_not_written_out() -> None:
    with pytest.raises(ConnectorError, match=r"aws_secret_access_key: a secret must not be written out"):
        source("s3://b/t", "snapshot", aws_secret_access_key="hidden")
    source("s3://b/t", "snapshot", aws_secret_access_key="${env:SECRET}", aws_region="x")


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="there is no Delta table at"):
        source(tmp_path / "none", "snapshot").poll(1)
