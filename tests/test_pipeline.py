"""What a user of the Python API relies on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import penstock
from penstock.errors import BadRowError, EvaluationError, ProgramError, StateError, StorageError

SHOP = """
CREATE TABLE orders (id INT PRIMARY KEY, region STRING NOT NULL, amount DECIMAL(8, 2), parts INT DEFAULT 1);
CREATE TABLE visits (page STRING, seconds INT);
CREATE TABLE log (line STRING) WITH ('append_only' = 'true');
CREATE VIEW by_region AS SELECT region, count(*) AS n, sum(amount) AS total FROM orders GROUP BY region;
CREATE VIEW per_part AS SELECT id, amount / parts AS each FROM orders;
CREATE VIEW pages AS SELECT page, count(*) AS n FROM visits GROUP BY page;
CREATE VIEW lines AS SELECT count(*) AS n FROM log;
CREATE VIEW clock AS SELECT count(*) AS n, max(current_timestamp()) AS at FROM orders;
"""


@pytest.fixture(scope="module")
def shop() -> Iterator[penstock.Pipeline]:
    with penstock.Pipeline("shop", program=SHOP, config={"workers": 2}) as pipeline:
        yield pipeline


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "shop" in request.fixturenames:
        shop: penstock.Pipeline = request.getfixturevalue("shop")
        for table in ("orders", "visits"):
            shop.delete(table, shop.query(f"SELECT * FROM {table}"))
        shop.flush()


def _rows(pipeline: penstock.Pipeline, view: str) -> list[dict[str, Any]]:
    rows = pipeline.query(f"SELECT * FROM {view}").to_pylist()
    return sorted(rows, key=repr)


def _order(id_: int, amount: str = "1.00", region: str = "north", **more: Any) -> dict[str, Any]:
    return {"id": id_, "region": region, "amount": Decimal(amount), **more}


def test_rows_of_every_kind(shop: penstock.Pipeline) -> None:
    shop.insert("orders", [_order(1)])
    shop.insert("ORDERS", pa.Table.from_pylist([_order(2)]))
    shop.insert("orders", pa.RecordBatch.from_pylist([_order(3)]))
    shop.insert("orders", pd.DataFrame([_order(4)]))
    shop.flush()
    assert _rows(shop, "by_region") == [{"region": "north", "n": 4, "total": Decimal("4.00")}]
    assert shop.query("SELECT DISTINCT parts FROM orders").to_pylist() == [{"parts": 1}]


def test_the_last_write_of_a_transaction_wins(shop: penstock.Pipeline) -> None:
    with shop.transaction():
        shop.insert("orders", [_order(1, "1.00"), _order(1, "2.00")])
        shop.delete("orders", [{"id": 1}])
        shop.insert("orders", [_order(1, "3.00")])
        shop.insert("orders", [_order(2, "9.00")])
        shop.delete("orders", [{"id": 2}])
    shop.flush()
    assert _rows(shop, "by_region") == [{"region": "north", "n": 1, "total": Decimal("3.00")}]


def test_an_exception_rolls_a_transaction_back(shop: penstock.Pipeline) -> None:
    before = shop.stats()["transactions"]

    def fail() -> None:
        with shop.transaction():
            shop.insert("orders", [_order(1)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    shop.flush()
    assert _rows(shop, "by_region") == []
    assert shop.stats()["transactions"] == before


def test_a_bag_counts_rows_and_bad_deletes(shop: penstock.Pipeline) -> None:
    errors = shop.stats()["tables"]["visits"]["errors"]
    with shop.transaction():
        shop.delete("visits", [{"page": "a", "seconds": 1}])  # not there yet
        shop.insert("visits", [{"page": "a", "seconds": 1}] * 3)
        shop.delete("visits", [{"page": "a", "seconds": 1}, {"page": "b", "seconds": None}])
    shop.flush()
    assert _rows(shop, "pages") == [{"page": "a", "n": 2}]
    assert shop.stats()["tables"]["visits"]["errors"] == errors + 2
    assert shop.stats()["tables"]["visits"]["rows"] == 2


def test_a_data_error_takes_nothing_with_it(shop: penstock.Pipeline) -> None:
    shop.insert("orders", [_order(1, "4.00", parts=2)])
    shop.flush()
    shop.insert("orders", [_order(2, parts=0), _order(3)])
    with pytest.raises(EvaluationError, match=r"did not take effect: in view per_part.*DIVIDE_BY_ZERO"):
        shop.flush()
    assert shop.state == "Paused"
    assert _rows(shop, "by_region") == [{"region": "north", "n": 1, "total": Decimal("4.00")}]
    assert shop.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 1}]
    shop.insert("orders", [_order(3)])
    with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
        shop.resume()
    shop.resume(skip_transaction=shop.stats()["transaction"]["number"])
    assert shop.state == "Running"
    shop.flush()
    assert _rows(shop, "by_region") == [{"region": "north", "n": 2, "total": Decimal("5.00")}]


def test_bad_rows_name_row_column_and_value(shop: penstock.Pipeline) -> None:
    with pytest.raises(BadRowError, match="amount"):
        shop.insert("orders", [_order(1), {"id": 2, "region": "x", "amount": "much"}])
    with pytest.raises(BadRowError, match="region"):
        shop.insert("orders", [{"id": 1, "amount": Decimal(1)}])
    with pytest.raises(BadRowError, match="colour"):
        shop.insert("orders", [_order(1, colour="red")])
    with pytest.raises(StateError, match="append_only"):
        shop.delete("log", [{"line": "a"}])
    with pytest.raises(StateError, match="the tables are: orders, visits, log"):
        shop.insert("order", [])
    shop.flush()
    assert _rows(shop, "by_region") == []


def test_changes(shop: penstock.Pipeline) -> None:
    shop.insert("orders", [_order(1)])
    shop.flush()
    changes = shop.changes("by_region")
    shop.insert("orders", [_order(2)])
    shop.flush()
    shop.insert("visits", [{"page": "a", "seconds": 1}])  # does not touch the view
    shop.flush()
    first, second = changes
    assert first.data.to_pylist() == [
        {"region": "north", "n": 1, "total": Decimal("1.00"), "_change_type": "insert", "_weight": 1}
    ]
    assert [(row["_change_type"], row["n"]) for row in second.data.to_pylist()] == [
        ("delete", 1),
        ("insert", 2),
    ]
    assert second.transaction == first.transaction + 1
    assert list(changes) == []
    shop.delete("orders", [{"id": 1}, {"id": 2}])
    shop.flush()
    (third,) = changes
    assert [(row["_change_type"], row["n"]) for row in third.data.to_pylist()] == [("delete", 2)]


def test_now_is_the_transactions_time(shop: penstock.Pipeline) -> None:
    times = []
    for id_ in (1, 2):
        shop.insert("orders", [_order(id_)])
        shop.flush()
        ((row),) = _rows(shop, "clock")
        times.append(row["at"])
        assert row["n"] == id_
    assert times[0] < times[1]


def test_many_threads_share_a_pipeline(shop: penstock.Pipeline) -> None:
    def send(start: int) -> None:
        for id_ in range(start, start + 20):
            shop.insert("orders", [_order(id_)])

    threads = [threading.Thread(target=send, args=(100 * n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shop.flush()
    assert _rows(shop, "by_region") == [{"region": "north", "n": 100, "total": Decimal("100.00")}]


def test_queries_are_any_spark_sql(shop: penstock.Pipeline) -> None:
    shop.insert("orders", [_order(1), _order(2, region="south")])
    shop.flush()
    found = shop.query(
        "SELECT o.id, r.n FROM orders o JOIN by_region r USING (region) ORDER BY id DESC LIMIT 1"
    )
    assert found.to_pylist() == [{"id": 2, "n": 1}]
    with pytest.raises(EvaluationError, match="nothing_here"):
        shop.query("SELECT * FROM nothing_here")


def test_explain_and_stats(shop: penstock.Pipeline) -> None:
    assert "group-delta" in shop.explain("by_region")
    operators = json.loads(shop.explain("by_region", format="json"))["operators"]
    assert operators[0]["strategy"] == "group-delta"
    assert shop.explain("by_region", format="mermaid").startswith("flowchart")
    with pytest.raises(StateError, match="the views are"):
        shop.explain("nothing")
    stats = shop.stats()
    assert stats["state"] == "Running"
    assert set(stats["views"]) == {"by_region", "per_part", "pages", "lines", "clock"}


def test_state_survives_a_stop_and_a_kill(tmp_path: Path) -> None:
    program = """
    CREATE TABLE t (id INT PRIMARY KEY, g INT);
    CREATE VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g;
    CREATE VIEW everything AS SELECT count(*) AS n FROM t;
    """
    first = penstock.Pipeline("kept", program=program, storage=tmp_path, config={"workers": 2})
    with first:
        first.insert("t", [{"id": i, "g": i % 2} for i in range(10)])
        with pytest.raises(StateError, match="in use by process"):
            penstock.Pipeline("kept", program=program, storage=tmp_path).start()
    with pytest.raises(StorageError, match="belongs to the pipeline 'kept'"):
        penstock.Pipeline("other", program=program, storage=tmp_path).start()
    other = program.replace("g INT", "g BIGINT")
    with pytest.raises(StorageError, match="table t has other columns or another key"):
        penstock.Pipeline("kept", program=other, storage=tmp_path).start()
    second = penstock.Pipeline("kept", program=program, storage=tmp_path, config={"workers": 2})
    with second:
        assert second.stats()["transactions"] == 1
        assert second.stats()["tables"]["t"]["rows"] == 10
        second.delete("t", [{"id": 0}])
        second.flush()
        assert _rows(second, "v") == [{"g": 0, "n": 4}, {"g": 1, "n": 5}]
        assert _rows(second, "everything") == [{"n": 9}]
    second.start()
    second.insert("t", [{"id": 0, "g": 0}])
    second.flush()
    second.insert("t", [{"id": 1, "g": 0}])
    second.flush()
    second.kill()
    with second:
        stats = second.stats()
        assert stats["transactions"] == 4
        assert (stats["recovery"]["transactions"], stats["recovery"]["rows"]) == (2, 2)
        assert all(stats["recovery"][part] >= 0 for part in ("spark_s", "load_s", "replay_s"))
        assert second.stats()["tables"]["t"]["rows"] == 10
        assert _rows(second, "v") == [{"g": 0, "n": 6}, {"g": 1, "n": 4}]
    (tmp_path / "catalog.json").unlink()
    with pytest.raises(StorageError, match=r"catalog\.json is missing.*penstock checkpoint repair"):
        second.start()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT rand() AS x FROM t", r"line 3, column 8.*rand\(\) gives another value"),
        ("SELECT uuid() AS x FROM t", r"uuid\(\) gives another value"),
        ("SELECT idd FROM t", r"line 3, column 8.*`idd`.*`id`"),
        ("SELECT id + 1 AS y, id AS y FROM t", "two columns are named y"),
        ("SELECT array(1) + id FROM t", "DATATYPE_MISMATCH"),
        ("SELECT id FROM t WHERE id >", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_errors_in_views_have_a_place(query: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        penstock.check(f"CREATE TABLE t (id INT);\nCREATE VIEW v AS\n{query}")


@pytest.mark.parametrize(("every", "replayed"), [(0.5, 1), (None, 3)])
def test_checkpoints_are_taken_as_often_as_set(tmp_path: Path, every: float | None, replayed: int) -> None:
    config = {"workers": 1, "fault_tolerance": {"checkpoint_interval_secs": every}}
    program = "CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT count(*) AS n FROM t"
    pipeline = penstock.Pipeline("kept", program=program, storage=tmp_path, config=config)
    pipeline.start()
    pipeline.insert("t", [{"id": 1}])
    pipeline.flush()
    deadline = time.monotonic() + 240
    while every and pipeline.stats()["checkpoint"]["transaction"] != 1:  # 0 is the initial one
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pipeline.insert("t", [{"id": 2}])
    pipeline.flush()
    pipeline.kill()
    with pipeline:
        assert pipeline.stats()["recovery"]["transactions"] == replayed
        assert _rows(pipeline, "v") == [{"n": 2}]


def test_null_of_a_type_whose_parts_cannot_be_null() -> None:
    program = """
    CREATE TABLE t (id INT PRIMARY KEY, v VARIANT, s STRUCT<a: INT NOT NULL>);
    CREATE VIEW c AS SELECT count(v) AS v, count(s) AS s FROM t;
    """
    with penstock.Pipeline("nulls", program, config={"workers": 2}) as pipeline:
        pipeline.push("t", '{"id": 1, "v": {"x": 1}, "s": {"a": 1}}\n{"id": 2}\n')
        pipeline.flush()
        assert _rows(pipeline, "c") == [{"v": 1, "s": 1}]
        assert pipeline.query("SELECT v, s FROM t WHERE id = 2").to_pylist() == [{"v": None, "s": None}]
        assert pipeline.query("SELECT v, s FROM t").num_rows == 2


@pytest.mark.parametrize(
    "command",
    [
        "DROP VIEW IF EXISTS v",
        "SET spark.sql.ansi.enabled = false",
        "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
        "INSERT OVERWRITE DIRECTORY 'elsewhere' USING json SELECT 1",
        "/* really */ CREATE TABLE other AS SELECT 1",
        "BEGIN SELECT 1; END",
    ],
)
def test_a_query_changes_nothing(command: str, shop: penstock.Pipeline) -> None:
    with pytest.raises(ProgramError, match="only queries can be asked"):
        shop.query(command)


@pytest.mark.parametrize(
    "query", ["SHOW TABLES", "-- how?\nDESCRIBE by_region", "EXPLAIN SELECT 1", "(SELECT 1)"]
)
def test_what_can_be_asked(query: str, shop: penstock.Pipeline) -> None:
    assert shop.query(query).num_rows
