"""delta_table_output: one commit per transaction, each exactly once, in tables that others can read."""

from __future__ import annotations

import datetime as dt
import random
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.connectors import Output, create_output
from penstock.connectors.interface import NOTHING
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, parse_program
from tests import delta
from tests.oracle.history import seed_of_run

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("Name", pa.string())])
VIEW = parse_program("CREATE TABLE t (id BIGINT, Name STRING); CREATE VIEW v AS SELECT * FROM t").views[0]
KINDS = {-1: "delete", 1: "insert"}


def output(table: Path | str, mode: str = "append", name: str = "out", **config: Any) -> Output:
    transport = {"name": "delta_table_output", "config": {"uri": str(table), "mode": mode, **config}}
    return create_output(Connector(name, {"transport": transport}), VIEW)


def mirror(table: Path, **config: Any) -> Output:
    return output(table, "mirror", key_columns=["ID"], **config)


def changes(*rows: tuple[int, Any, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as (weight, id, name)."""
    kinds = pa.array([KINDS[1 if row[0] > 0 else -1] for row in rows], pa.string())
    data = pa.table([pa.array(column) for column in list(zip(*rows, strict=True))[1:]], schema=schema)
    weights = pa.array([abs(row[0]) for row in rows], pa.int64())
    return data.append_column("_change_type", kinds).append_column("_weight", weights)


def row(id: Any, name: Any, kind: str, weight: int, transaction: int) -> dict[str, Any]:
    return {"id": id, "Name": name, "_change_type": kind, "_weight": weight, "_transaction": transaction}


def by_id(rows: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return sorted(((r["id"], r["Name"]) for r in rows), key=lambda pair: (pair[0] is not None, pair))


# -- changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "truncate", "error_if_exists"])
def test_changes_are_rows_with_their_kind_weight_and_transaction(tmp_path: Path, mode: str) -> None:
    sink = output(tmp_path / "t", mode)
    assert sink.open("p1", SCHEMA) == NOTHING
    sink.write(3, changes((2, 1, "a"), (1, 2, None)))
    sink.write(5, changes((-1, 1, "a")))
    rows = [row(1, "a", "insert", 2, 3), row(2, None, "insert", 1, 3), row(1, "a", "delete", 1, 5)]
    assert sorted(map(repr, delta.read(tmp_path / "t"))) == sorted(map(repr, rows))
    assert delta.transactions(tmp_path / "t")[-2:] == [("penstock:p1/out", 3), ("penstock:p1/out", 5)]


@pytest.mark.parametrize("mode", ["append", "truncate", "error_if_exists", "mirror"])
def test_a_restart_goes_on_after_the_last_commit(tmp_path: Path, mode: str) -> None:
    key = {"key_columns": ["id"]} if mode == "mirror" else {}
    sink = output(tmp_path / "t", mode, **key)
    sink.open("p1", SCHEMA)
    assert output(tmp_path / "t", mode, **key).open("p1", SCHEMA) == NOTHING
    for number in range(25):  # long enough for checkpoints of the log
        sink.write(number, changes((1, number, "x")))
    again = output(tmp_path / "t", mode, **key)
    assert again.open("p1", SCHEMA) == 24
    again.write(24, changes((1, 24, "x")))  # a repeat
    again.write(25, changes((1, 25, "x")))
    assert by_id(delta.read(tmp_path / "t")) == [(number, "x") for number in range(26)]


@pytest.mark.parametrize("mode", ["append", "mirror"])
def test_data_without_its_commit_is_not_there(tmp_path: Path, mode: str) -> None:
    key = {"key_columns": ["id"]} if mode == "mirror" else {}
    sink = output(tmp_path / "t", mode, **key)
    sink.open("p1", SCHEMA)
    sink.write(0, changes((1, 1, "a")))
    sink.write(1, changes((-1, 1, "a"), (1, 1, "b"), (1, 2, "c")))
    expected = sorted(map(repr, delta.read(tmp_path / "t")))
    last = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    last.unlink()  # the crash came after the Parquet files and before the log
    assert len(delta.read(tmp_path / "t")) == 1
    again = output(tmp_path / "t", mode, **key)
    assert again.open("p1", SCHEMA) == 0
    again.write(1, changes((-1, 1, "a"), (1, 1, "b"), (1, 2, "c")))
    assert sorted(map(repr, delta.read(tmp_path / "t"))) == expected


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = output(tmp_path / "t")
    sink.open("p1", SCHEMA)

    def lost(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.connectors.output.delta._sync", lost)
        with pytest.raises(UnreachableError):
            sink.write(0, changes((1, 1, "a")))
    synced: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr("penstock.connectors.output.delta._sync", lambda _, version: synced.append(version))
        sink.write(0, changes((1, 1, "a")))
    assert synced == [1]  # it is not acknowledged before it is on the disk
    assert by_id(delta.read(tmp_path / "t")) == [(1, "a")]


def test_two_writers_with_one_number_commit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table refuses the second, also if both looked before either wrote."""
    first, second = output(tmp_path / "t"), output(tmp_path / "t")
    first.open("p1", SCHEMA)
    second.open("p1", SCHEMA)
    first.write(0, changes((1, 1, "a")))
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "update_incremental", lambda self: None)
        with pytest.raises(UnreachableError, match="Failed to commit"):
            second.write(0, changes((1, 1, "a")))
    second.write(0, changes((1, 1, "a")))
    assert by_id(delta.read(tmp_path / "t")) == [(1, "a")]


CHILD = """
import sys
from tests.test_delta_output import SCHEMA, changes, mirror, output
from pathlib import Path
table, mode = Path(sys.argv[1]), sys.argv[2]
sink = mirror(table) if mode == "mirror" else output(table, mode)
last = sink.open("p1", SCHEMA)
for n in range(last + 1, 400):
    old = [(-1, 0, str(n - 1))] if n else []
    sink.write(n, changes(*old, (1, 0, str(n)), (1, n + 1, "x")))
    print(n, flush=True)
"""


@pytest.mark.parametrize("mode", ["append", "mirror"])
def test_killed_at_any_moment_each_transaction_is_there_once(tmp_path: Path, mode: str) -> None:
    seed = seed_of_run()
    moments = random.Random(f"{seed} {mode}")
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "t"), mode], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(moments.uniform(0, 0.4))
        child.send_signal(signal.SIGKILL)
        acknowledged = child.stdout.read().split()
        child.stdout.close()
        child.wait()
        last = (mirror(tmp_path / "t") if mode == "mirror" else output(tmp_path / "t")).open("p1", SCHEMA)
        assert last >= int(acknowledged[-1] if acknowledged else 0), f"seed {seed}"
        rows = delta.read(tmp_path / "t")
        if mode == "mirror":
            assert by_id(rows) == [(0, str(last)), *((n, "x") for n in range(1, last + 2))], f"seed {seed}"
        else:
            assert sorted(r["_transaction"] for r in rows if r["Name"] == "x") == list(range(last + 1))


# -- mirror ---------------------------------------------------------------------------------------


def test_mirror_keeps_the_table_equal_to_the_view(tmp_path: Path) -> None:
    seed = seed_of_run()
    random_ = random.Random(seed)
    sink = mirror(tmp_path / "t")
    sink.open("p1", SCHEMA)
    view: dict[int | None, str | None] = {}
    for number in range(20):
        before = dict(view)
        for _ in range(random_.randint(1, 6)):
            key = random_.choice([None, *range(8)])
            if random_.random() < 0.4:
                view.pop(key, None)
            else:
                view[key] = random_.choice([None, "a", "b", "'; --"])
        rows = [(-1, k, v) for k, v in before.items() if k not in view or view[k] != v]
        rows += [(1, k, v) for k, v in view.items() if k not in before or before[k] != v]
        if rows:
            sink.write(number, changes(*rows, schema=pa.schema([("id", pa.int64()), ("Name", pa.string())])))
        assert by_id(delta.read(tmp_path / "t")) == by_id([{"id": k, "Name": v} for k, v in view.items()]), (
            f"seed {seed}"
        )


def test_mirror_takes_over_what_another_pipeline_mirrored(tmp_path: Path) -> None:
    first = mirror(tmp_path / "t")
    first.open("p1", SCHEMA)
    first.write(7, changes((1, 1, "a")))
    second = mirror(tmp_path / "t")
    assert second.open("p2", SCHEMA) == NOTHING
    assert delta.read(tmp_path / "t") == []
    second.write(0, changes((1, 2, "b")))
    with pytest.raises(ConnectorError, match="taken over by another pipeline"):
        first.write(8, changes((1, 3, "c")))
    assert by_id(delta.read(tmp_path / "t")) == [(2, "b")]
    assert mirror(tmp_path / "t").open("p1", SCHEMA) == NOTHING  # and back again, from the start


def test_mirror_does_not_touch_the_rows_of_others(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    with pytest.raises(ConnectorError, match="has rows that are not Penstock's"):
        mirror(tmp_path / "t").open("p1", SCHEMA)
    assert DeltaTable(tmp_path / "t").version() == 0


@pytest.mark.parametrize("rows", [[(1, 1, "a"), (1, 1, "b")], [(2, 1, "a")]])
def test_mirror_refuses_a_key_of_several_rows(tmp_path: Path, rows: list[tuple[int, Any, Any]]) -> None:
    sink = mirror(tmp_path / "t")
    sink.open("p1", SCHEMA)
    with pytest.raises(ConnectorError, match="transaction 0: the view has several rows with id = 1"):
        sink.write(0, changes(*rows))
    assert delta.read(tmp_path / "t") == []


def test_mirror_says_when_the_table_differs(tmp_path: Path) -> None:
    sink = mirror(tmp_path / "t")
    sink.open("p1", SCHEMA)
    sink.write(0, changes((1, 1, "a")))
    with pytest.raises(ConnectorError, match="do not tell the rows of the view apart"):
        sink.write(1, changes((1, 1, "b")))


# -- tables that are there already ----------------------------------------------------------------


def test_append_adds_to_a_table_with_the_same_columns(tmp_path: Path) -> None:
    for owner in ("p1", "p2"):
        sink = output(tmp_path / "t")
        assert sink.open(owner, SCHEMA) == NOTHING
        sink.write(0, changes((1, 1, owner)))
        assert output(tmp_path / "t").open(owner, SCHEMA) == 0
    assert by_id(delta.read(tmp_path / "t")) == [(1, "p1"), (1, "p2")]


def test_truncate_replaces_and_error_if_exists_refuses(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"other": [1, 2]}))
    with pytest.raises(ConnectorError, match=r"there is a Delta table at .* already"):
        output(tmp_path / "t", "error_if_exists").open("p1", SCHEMA)
    with pytest.raises(ConnectorError, match=r"other columns than the view: id \(not there, expected long\)"):
        output(tmp_path / "t").open("p1", SCHEMA)
    sink = output(tmp_path / "t", "truncate")
    assert sink.open("p1", SCHEMA) == NOTHING
    sink.write(0, changes((1, 1, "a")))
    assert delta.read(tmp_path / "t") == [row(1, "a", "insert", 1, 0)]
    with pytest.raises(ConnectorError, match="belongs to another output"):
        output(tmp_path / "t", name="other").open("p1", SCHEMA)


def test_columns_of_another_type_are_refused(tmp_path: Path) -> None:
    output(tmp_path / "t").open("p1", SCHEMA)
    other = pa.schema([("id", pa.string()), ("Name", pa.string())])
    with pytest.raises(ConnectorError, match=r"id \(long, expected string\)"):
        output(tmp_path / "t").open("p1", other)


def test_a_table_that_forgets_transactions_is_refused(tmp_path: Path) -> None:
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    DeltaTable.create(tmp_path / "t", SCHEMA, configuration=forgets)
    with pytest.raises(ConnectorError, match="forgets which transactions"):
        output(tmp_path / "t", "truncate").open("p1", SCHEMA)


# -- values and settings --------------------------------------------------------------------------


def test_values_of_every_type_are_read_back(tmp_path: Path) -> None:
    values: dict[str, tuple[pa.DataType, Any]] = {
        "tiny": (pa.int8(), -128),
        "small": (pa.int16(), 32767),
        "int": (pa.int32(), 1),
        "float": (pa.float32(), 1.5),
        "double": (pa.float64(), float("inf")),
        "bool": (pa.bool_(), True),
        "text": (pa.string(), "ä'\""),
        "raw": (pa.binary(), b"\x00\xff"),
        "price": (pa.decimal128(38, 10), Decimal("-1234567890123456789012345678.0000000001")),
        "day": (pa.date32(), dt.date(1, 1, 1)),
        "at": (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)),
        "local_at": (pa.timestamp("us"), dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
        "tags": (pa.list_(pa.int32()), [1, None]),
        "marks": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        "point": (pa.struct([("x", pa.int32())]), {"x": None}),
    }
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in values.items())])
    rows = [{"id": 1} | {name: value for name, (_, value) in values.items()}, {"id": 2}]
    table = pa.Table.from_pylist(rows, schema)
    table = table.append_column("_change_type", pa.array(["insert"] * 2))
    table = table.append_column("_weight", pa.array([1, 1], pa.int64()))
    for mode, key in (("append", {}), ("mirror", {"key_columns": ["id"]})):
        sink = output(tmp_path / mode, mode, **key)
        sink.open("p1", schema)
        sink.write(0, table)
        found = sorted(delta.read(tmp_path / mode), key=lambda r: r["id"])
        names = schema.names
        assert [{n: r[n] for n in names} for r in found] == table.select(names).to_pylist()


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (pa.field("count(1)", pa.int64()), "column 'count\\(1\\)': .* give it an alias"),
        (pa.field("x", pa.duration("us")), "column 'x': a Delta table cannot hold"),
        (pa.field("x", pa.null()), "column 'x': a Delta table cannot hold VOID"),
    ],
)
def test_columns_that_delta_cannot_hold_are_named(tmp_path: Path, field: pa.Field, said: str) -> None:
    with pytest.raises(ConnectorError, match=said):
        output(tmp_path / "t").open("p1", pa.schema([field]))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"mode": "upsert"}, "expected one of append, truncate, error_if_exists, mirror, found 'upsert'"),
        ({"mode": "mirror"}, "'mirror' needs 'key_columns'"),
        ({"key_columns": ["id"]}, "only for the mode 'mirror'"),
        ({"mode": "mirror", "key_columns": ["id", "ID"]}, "expected a list of different column names"),
        ({"aws_region": "x"}, "unknown field 'aws_region'"),
        ({"uri": "s3://b/t", "aws_regoin": 1}, "aws_regoin: expected a string, found 1"),
        ({"uri": "s3://b/t", "regoin": "x"}, "unknown field 'regoin'; did you mean 'region'?"),
        ({"uri": "ftp://b/t"}, "expected a path or a URI that starts with file://"),
        ({"checkpoint_interval": -1}, "expected an integer of at least 0"),
        ({"log_retention_duration": "30 days"}, "expected 'interval <number> <unit>'"),
    ],
)
def test_wrong_configuration_is_named(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError, match="connector out") as caught:
        output(**{"table": config.pop("uri", tmp_path / "t"), **config})
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_key_column_must_be_one_of_the_view(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="no column 'nope'"):
        output(tmp_path / "t", "mirror", key_columns=["nope"]).open("p1", SCHEMA)


def test_properties_of_a_new_table(tmp_path: Path) -> None:
    sink = output(
        tmp_path / "t",
        checkpoint_interval=0,
        enable_expired_log_cleanup=False,
        log_retention_duration="interval 7 days",
        threads=4,
    )
    sink.open("p1", SCHEMA)
    for number in range(15):
        sink.write(number, changes((1, number, "x")))
    assert not list((tmp_path / "t" / "_delta_log").glob("*.checkpoint*"))
    properties = DeltaTable(tmp_path / "t").metadata().configuration
    assert properties["delta.enableExpiredLogCleanup"] == "false"
    assert properties["delta.logRetentionDuration"] == "interval 7 days"


def test_a_store_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "s")
    options = {
        "aws_endpoint_url": "http://127.0.0.1:1",
        "aws_region": "nowhere",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "${env:PENSTOCK_TEST_SECRET}",
        "allow_http": "true",
        "retry_timeout": "1s",
    }
    sink = output("s3://bucket/t", max_retries=1, **options)
    with pytest.raises(UnreachableError, match="s3://bucket/t"):
        sink.open("p1", SCHEMA)
    with pytest.raises(ConnectorError, match="max_retries") as caught:
        sink.open("p1", SCHEMA)
    assert not isinstance(caught.value, UnreachableError)
    monkeypatch.delenv("PENSTOCK_TEST_SECRET")
    with pytest.raises(ConnectorError, match="PENSTOCK_TEST_SECRET is not set"):
        sink.open("p1", SCHEMA)
