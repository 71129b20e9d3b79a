"""postgres_output: rows and the number of their transaction are committed together, by a real server."""

from __future__ import annotations

import datetime as dt
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psycopg
import pyarrow as pa
import pytest

from penstock.connectors import Output, create_output
from penstock.connectors.interface import NOTHING
from penstock.connectors.postgres import SESSION
from penstock.errors import ConnectorError, UnreachableError
from penstock.sql import Connector, parse_program
from tests.oracle.history import seed_of_run
from tests.servers import Postgres, free_port

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
VIEW = parse_program("CREATE TABLE t (id BIGINT, name STRING); CREATE VIEW v AS SELECT * FROM t").views[0]
TABLE = "CREATE TABLE target (id bigint PRIMARY KEY, name text)"
CHANGES = "CREATE TABLE target (id bigint, name text, _change_type text, _weight bigint, _transaction bigint)"


def output(uri: str, name: str = "out", **config: Any) -> Output:
    transport = {"name": "postgres_output", "config": {"uri": uri, "table": "target", **config}}
    return create_output(Connector(name, {"transport": transport}), VIEW)


def changes(*rows: tuple[int, Any, Any]) -> pa.Table:
    """Rows as (weight, id, name)."""
    kinds = pa.array(["insert" if row[0] > 0 else "delete" for row in rows], pa.string())
    data = pa.table([pa.array(column) for column in list(zip(*rows, strict=True))[1:]], schema=SCHEMA)
    weights = pa.array([abs(row[0]) for row in rows], pa.int64())
    return data.append_column("_change_type", kinds).append_column("_weight", weights)


def run(uri: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements; the rows of the last."""
    with psycopg.connect(uri) as connection:
        for statement in statements:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
        return list(cursor.fetchall()) if cursor.description else []


def rows(uri: str) -> list[tuple[Any, ...]]:
    return run(uri, "SELECT * FROM target ORDER BY 1, 2")


# -- a table equal to the view --------------------------------------------------------------------


def test_deletes_updates_and_inserts_by_key(database: str) -> None:
    run(database, TABLE)
    with closing(output(database)) as sink:
        assert sink.open("p1", SCHEMA) == NOTHING
        sink.write(0, changes((1, 1, "a"), (1, 2, None), (1, 3, "c")))
        sink.write(4, changes((-1, 1, "a"), (-1, 3, "c"), (1, 1, "b"), (1, 4, "'); DROP TABLE target; --")))
    assert rows(database) == [(1, "b"), (2, None), (4, "'); DROP TABLE target; --")]
    assert run(database, "SELECT connector, transaction FROM _penstock_transactions") == [("p1/out", 4)]


@pytest.mark.parametrize("config", [{}, {"max_records_in_buffer": 1}, {"max_buffer_size_bytes": 40}])
def test_the_table_is_equal_to_the_view(database: str, config: dict[str, Any]) -> None:
    run(database, TABLE)
    seed = seed_of_run()
    random_ = random.Random(seed)
    view: dict[int, str | None] = {}
    with closing(output(database, **config)) as sink:
        sink.open("p1", SCHEMA)
        for number in range(30):
            before = dict(view)
            for _ in range(random_.randint(1, 8)):
                key = random_.randrange(8)
                if random_.random() < 0.4:
                    view.pop(key, None)
                else:
                    view[key] = random_.choice([None, "a", "b", '"\\'])
            gone = [(-1, k, v) for k, v in before.items() if k not in view or view[k] != v]
            new = [(1, k, v) for k, v in view.items() if k not in before or before[k] != v]
            if gone or new:
                sink.write(number, changes(*gone, *new))
            assert rows(database) == sorted(view.items()), f"seed {seed}"


def test_a_restart_goes_on_after_the_last_transaction(database: str) -> None:
    run(database, TABLE)
    with closing(output(database)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(3, changes((1, 1, "a")))
    with closing(output(database)) as sink:
        assert sink.open("p1", SCHEMA) == 3
        sink.write(3, changes((1, 1, "not this")))
        sink.write(4, changes((1, 2, "b")))
    assert rows(database) == [(1, "a"), (2, "b")]


def test_on_conflict_do_nothing_keeps_a_row_that_is_there(database: str) -> None:
    run(database, TABLE)
    with closing(output(database, on_conflict_do_nothing=True)) as sink:
        sink.open("p1", SCHEMA)
        run(database, "INSERT INTO target VALUES (1, 'mine')")
        sink.write(0, changes((1, 1, "a"), (1, 2, "b")))
        assert rows(database) == [(1, "mine"), (2, "b")]
        sink.write(1, changes((-1, 2, "b"), (1, 2, "c")))  # an update replaces
    assert rows(database) == [(1, "mine"), (2, "c")]


def test_any_unique_index_can_be_the_key(database: str) -> None:
    run(
        database,
        "CREATE TABLE target (serial int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id int8, name text)",
    )
    with pytest.raises(ConnectorError, match="has no primary key and no unique index whose columns"):
        output(database).open("p1", SCHEMA)
    with pytest.raises(ConnectorError, match="no unique index of the columns ID"):
        output(database, key_columns=["ID"]).open("p1", SCHEMA)
    run(database, "CREATE UNIQUE INDEX ON target (id)")
    with closing(output(database)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a")))
        sink.write(1, changes((-1, 1, "a"), (1, 1, "b")))
    assert run(database, "SELECT id, name FROM target") == [(1, "b")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changes((1, 1, "a"), (1, 1, "b")), "transaction 0: the view has several rows with id = 1"),
        (changes((2, 1, "a")), "the view has several rows with id = 1"),
        (changes((1, None, "a")), "the key column 'id' is NULL"),
        (changes((1, 1, "a\x00b")), "cannot write transaction 0 to target"),
    ],
)
def test_rows_that_the_table_cannot_hold_are_refused(database: str, change: pa.Table, said: str) -> None:
    run(database, TABLE)
    with closing(output(database)) as sink:
        sink.open("p1", SCHEMA)
        with pytest.raises(ConnectorError, match=said) as caught:
            sink.write(0, change)
        assert not isinstance(caught.value, UnreachableError)
        sink.write(1, changes((1, 9, "x")))
    assert rows(database) == [(9, "x")]


# -- a table of changes ---------------------------------------------------------------------------


def test_cdc_appends_the_changes(database: str) -> None:
    run(database, CHANGES, "INSERT INTO target (id) VALUES (0)")
    with closing(output(database, mode="cdc")) as sink:
        assert sink.open("p1", SCHEMA) == NOTHING
        sink.write(0, changes((2, 1, "a")))
        sink.write(2, changes((-1, 1, "a")))
        sink.write(2, changes((-1, 1, "a")))
    with closing(output(database, mode="cdc")) as sink:
        assert sink.open("p1", SCHEMA) == 2
    assert run(database, "SELECT * FROM target ORDER BY _transaction NULLS FIRST") == [
        (0, None, None, None, None),
        (1, "a", "insert", 2, 0),
        (1, "a", "delete", 1, 2),
    ]


# -- who the table belongs to ---------------------------------------------------------------------


def test_another_pipeline_takes_the_table_over(database: str) -> None:
    run(database, TABLE)
    with closing(output(database)) as first, closing(output(database)) as second:
        first.open("p1", SCHEMA)
        first.write(7, changes((1, 1, "a")))
        assert second.open("p2", SCHEMA) == NOTHING
        assert rows(database) == []
        second.write(0, changes((1, 2, "b")))
        with pytest.raises(ConnectorError, match="taken over by another pipeline"):
            first.write(8, changes((1, 3, "c")))
    assert rows(database) == [(2, "b")]


def test_two_outputs_of_one_pipeline_do_not_share_a_table(database: str) -> None:
    run(database, TABLE)
    with closing(output(database)) as sink:
        sink.open("p1", SCHEMA)
        with pytest.raises(ConnectorError, match="is written by p1/out too"):
            output(database, name="second").open("p1", SCHEMA)


def test_rows_of_others_are_not_touched(database: str) -> None:
    run(database, TABLE, "INSERT INTO target VALUES (1, 'mine')")
    with pytest.raises(ConnectorError, match="has rows that are not Penstock's"):
        output(database).open("p1", SCHEMA)
    assert rows(database) == [(1, "mine")]


# -- connections ----------------------------------------------------------------------------------


class Proxy:
    """Stands between client and server and cuts the connection at a COMMIT, as often as it is told to."""

    def __init__(self, server: int) -> None:
        self._server = server
        self.cut: str | None = None
        """`before` the server sees the COMMIT, `after` it answered, or `silently`: the server never knows."""
        self._left: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for server in self._left:
            server.shutdown(socket.SHUT_RDWR)
            server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server))
        with client, closing(server):
            committing = threading.Event()
            threading.Thread(target=self._answers, args=(server, client, committing), daemon=True).start()
            try:
                while data := client.recv(65536):
                    if self.cut is not None and b"COMMIT" in data:
                        committing.set()
                        cut, self.cut = self.cut, None
                        if cut == "silently":
                            self._left.append(server.dup())
                        if cut != "after":
                            break
                    server.sendall(data)
                    if committing.is_set():
                        time.sleep(0.3)  # the server commits; its answer is dropped
                        break
            except OSError:
                pass
            if not self._left:
                server.shutdown(socket.SHUT_RDWR)

    def _answers(self, server: socket.socket, client: socket.socket, committing: threading.Event) -> None:
        try:
            while data := server.recv(65536):
                if committing.is_set():
                    return
                client.sendall(data)
        except OSError:
            return


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with closing(Proxy(postgres.port)) as proxy:
        yield proxy


@pytest.mark.parametrize(("cut", "there"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("restart", [False, True])
def test_a_connection_lost_while_it_commits(
    database: str, postgres: Postgres, proxy: Proxy, cut: str, there: int, restart: bool
) -> None:
    run(database, CHANGES)
    name = urlparse(database).path[1:]
    through = postgres.uri(name, port=proxy.port)
    with closing(output(through, mode="cdc")) as sink:
        sink.open("p1", SCHEMA)
        proxy.cut = cut
        with pytest.raises(UnreachableError, match="cannot write transaction 0"):
            sink.write(0, changes((1, 1, "a")))
        assert len(rows(database)) == there
        if not restart:
            sink.write(0, changes((1, 1, "a")))
    if restart:
        with closing(output(through, mode="cdc")) as sink:
            assert sink.open("p1", SCHEMA) == there - 1
            sink.write(0, changes((1, 1, "a")))
    assert rows(database) == [(1, "a", "insert", 1, 0)]


def test_a_lock_that_a_lost_connection_still_holds_is_waited_for(
    database: str, postgres: Postgres, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SESSION, "idle_in_transaction_session_timeout", "1500ms")
    monkeypatch.setitem(SESSION, "lock_timeout", "300ms")
    run(database, CHANGES)
    through = postgres.uri(urlparse(database).path[1:], port=proxy.port)
    with closing(output(through, mode="cdc")) as sink:
        sink.open("p1", SCHEMA)
        proxy.cut = "silently"
        for _ in range(2):
            with pytest.raises(UnreachableError, match="cannot write transaction 0"):
                sink.write(0, changes((1, 1, "a")))
        time.sleep(2)
        sink.write(0, changes((1, 1, "a")))
    assert rows(database) == [(1, "a", "insert", 1, 0)]


def test_a_server_that_goes_away_and_comes_back(database: str, postgres: Postgres) -> None:
    run(database, TABLE)
    with closing(output(database)) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a")))
        postgres.stop("immediate")
        try:
            for _ in range(2):
                with pytest.raises(UnreachableError):
                    sink.write(1, changes((1, 2, "b")))
            with pytest.raises(UnreachableError):
                output(database).open("p1", SCHEMA)
        finally:
            postgres.start()
        sink.write(1, changes((1, 2, "b")))
    assert rows(database) == [(1, "a"), (2, "b")]


CHILD = """
import sys
from tests.test_postgres_output import SCHEMA, changes, output
sink = output(sys.argv[1])
for n in range(sink.open("p1", SCHEMA) + 1, 100_000):
    old = [(-1, 0, str(n - 1))] if n else []
    sink.write(n, changes(*old, (1, 0, str(n)), (1, n + 1, "x")))
    print(n, flush=True)
"""


def test_killed_at_any_moment_each_transaction_is_there_once(database: str) -> None:
    run(database, TABLE)
    seed = seed_of_run()
    moments = random.Random(seed)
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", CHILD, database], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(moments.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        acknowledged = child.stdout.read().split()
        child.stdout.close()
        child.wait()
        with closing(output(database)) as sink:
            last = sink.open("p1", SCHEMA)
            sink.write(last, changes((1, 0, "a repeat")))  # waits for the killed one, and does nothing
            last = max(last, sink.open("p1", SCHEMA))
        assert last >= int(acknowledged[-1] if acknowledged else 0), f"seed {seed}"
        expected = [(0, str(last)), *((n, "x") for n in range(1, last + 2))]
        assert rows(database) == expected, f"seed {seed}"


def test_errors_that_stay_are_final(
    database: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri in (postgres.uri("nowhere"), postgres.uri(user="nobody")):
        with pytest.raises(ConnectorError, match="does not exist") as caught:
            output(uri).open("p1", SCHEMA)
        assert not isinstance(caught.value, UnreachableError)
    with pytest.raises(UnreachableError):
        output(f"postgresql://penstock:hidden@127.0.0.1:{free_port()}/x").open("p1", SCHEMA)
    monkeypatch.setenv("PENSTOCK_TEST_URI", database)
    run(database, TABLE)
    with closing(output("${env:PENSTOCK_TEST_URI}")) as sink:
        sink.open("p1", SCHEMA)


def test_tls_verifies_the_server(database: str, postgres: Postgres, tmp_path: Path) -> None:
    if not postgres.tls:
        pytest.skip("this PostgreSQL was built without TLS")
    run(database, TABLE)
    name = urlparse(database).path
    by_name, by_address = (
        f"postgresql://penstock@{host}:{postgres.port}{name}" for host in ("localhost", "127.0.0.1")
    )
    (tmp_path / "ca.pem").write_text(postgres.certificate)
    for uri, config in (
        (by_name, {"ssl_ca_pem": postgres.certificate}),
        (by_name, {"ssl_ca_location": str(tmp_path / "ca.pem")}),
        (by_address, {"ssl_ca_pem": postgres.certificate, "verify_hostname": False}),
    ):
        with closing(output(uri, **config)) as sink:
            sink.open("p1", SCHEMA)
            used = "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)"
            assert (True,) in run(database, f"{used} WHERE a.datname = current_database()")
    with pytest.raises(ConnectorError, match="certificate") as caught:
        output(by_address, ssl_ca_pem=postgres.certificate).open("p1", SCHEMA)
    assert not isinstance(caught.value, UnreachableError)


# -- tables and types -----------------------------------------------------------------------------

TYPES: dict[str, tuple[pa.DataType, str, Any]] = {
    "tiny": (pa.int8(), "int2", -128),
    "big": (pa.int64(), "numeric", 2**63 - 1),
    "single": (pa.float32(), "float4", 1.5),
    "double": (pa.float64(), "float8", float("inf")),
    "flag": (pa.bool_(), "bool", True),
    "text": (pa.string(), "varchar(20)", "ä'\"\\\n"),
    "key": (pa.string(), "uuid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    "raw": (pa.binary(), "bytea", b"\x00\xff"),
    "price": (pa.decimal128(38, 10), "numeric", Decimal("-1234567890123456789012345678.0000000001")),
    "day": (pa.date32(), "date", dt.date(1, 1, 1)),
    "at": (pa.timestamp("us", "UTC"), "timestamptz", dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)),
    "local": (pa.timestamp("us"), "timestamp", dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
    "span": (pa.duration("us"), "interval", dt.timedelta(days=-3, microseconds=5)),
    "tags": (pa.list_(pa.int32()), "int4[]", [1, None]),
    "grid": (pa.list_(pa.list_(pa.int32())), "jsonb", [[1], []]),
    "marks": (pa.map_(pa.string(), pa.int64()), "jsonb", {"a": 1}),
    "point": (pa.struct([("x", pa.int32()), ("raw", pa.binary())]), "jsonb", {"x": None, "raw": None}),
}


def every_type() -> tuple[pa.Schema, pa.Table]:
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _, _) in TYPES.items())])
    values = {name: list(v.items()) if name == "marks" else v for name, (_, _, v) in TYPES.items()}
    table = pa.Table.from_pylist([{"id": 1, **values}, {"id": 2}], schema)
    table = table.append_column("_change_type", pa.array(["insert"] * 2))
    return schema, table.append_column("_weight", pa.array([1, 1], pa.int64()))


@pytest.mark.parametrize("create", [False, True])
def test_values_of_every_type_are_read_back(database: str, create: bool) -> None:
    columns = ", ".join(f"{name} {declared}" for name, (_, declared, _) in TYPES.items())
    if not create:
        run(database, f"CREATE TABLE target (id bigint PRIMARY KEY, {columns})")
    schema, table = every_type()
    config: dict[str, Any] = {"create_table": True, "key_columns": ["ID"]} if create else {}
    with closing(output(database, **config)) as sink:
        sink.open("p1", schema)
        sink.write(0, table)
        deleted = table.slice(1).set_column(table.num_columns - 2, "_change_type", pa.array(["delete"]))
        sink.write(1, deleted)
    (found,) = run(database, "SET TimeZone TO 'UTC'", "SELECT * FROM target")
    expected: dict[str, Any] = {name: value for name, (_, _, value) in TYPES.items()}
    if create:
        expected["tags"] = [1, None]
    found_values = dict(zip(["id", *TYPES], found, strict=True))
    found_values["key"] = str(found_values["key"])
    assert found_values == {"id": 1, **expected}


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("date", pa.timestamp("us", "UTC")),
        ("numeric(10, 2)", pa.decimal128(10, 4)),
        ("float4", pa.float64()),
        ("int4", pa.float64()),
        ("int4", pa.string()),
        ("char(3)", pa.string()),
        ("text", pa.int32()),
        ("jsonb", pa.int32()),
        ("int4[]", pa.map_(pa.string(), pa.int32())),
    ],
)
def test_columns_that_would_change_a_value_are_refused(
    database: str, declared: str, kind: pa.DataType
) -> None:
    run(database, f"CREATE TABLE target (id bigint PRIMARY KEY, name {declared})")
    with pytest.raises(ConnectorError, match=r"column 'name' is .*, which cannot hold every"):
        output(database).open("p1", pa.schema([("id", pa.int64()), ("name", kind)]))


def test_names_and_schemas(database: str) -> None:
    run(
        database,
        "CREATE SCHEMA deep",
        'CREATE TABLE deep."The Table" ("ID" bigint PRIMARY KEY, name text, other int DEFAULT 7)',
    )
    with closing(output(database, table="deep.The Table")) as sink:
        sink.open("p1", SCHEMA)
        sink.write(0, changes((1, 1, "a")))
    assert run(database, 'SELECT * FROM deep."The Table"') == [(1, "a", 7)]
    assert run(database, "SELECT transaction FROM deep._penstock_transactions") == [(0,)]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("(id bigint PRIMARY KEY)", "table target has no column 'name'"),
        ("(id bigint PRIMARY KEY, name text, x int NOT NULL)", "column 'x' is NOT NULL without a default"),
        (
            "(id bigint PRIMARY KEY, n int, name text GENERATED ALWAYS AS ('x') STORED)",
            "column 'name' is generated",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_named(database: str, declared: str, said: str) -> None:
    with pytest.raises(ConnectorError, match="there is no table target"):
        output(database).open("p1", SCHEMA)
    run(database, f"CREATE TABLE target {declared}")
    with pytest.raises(ConnectorError, match=said):
        output(database).open("p1", SCHEMA)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"mode": "upsert"}, "expected one of materialized, cdc, found 'upsert'"),
        ({"mode": "cdc", "on_conflict_do_nothing": True}, "only for the mode 'materialized'"),
        ({"mode": "cdc", "key_columns": ["id"]}, "key_columns: only for the mode 'materialized'"),
        ({"create_table": True}, "create_table: needs 'key_columns'"),
        ({"cdc_op_column": "op"}, "cdc_op_column: not supported; the changes have the columns"),
        ({"extra_columns": []}, "extra_columns: not supported"),
        ({"tabel": "x"}, "unknown field 'tabel'; did you mean 'table'?"),
        ({"verify_hostname": True}, "verify_hostname: needs ssl_ca_pem or ssl_ca_location"),
        ({"ssl_ca_pem": "x", "ssl_ca_location": "y"}, "give only one of ssl_ca_pem and ssl_ca_location"),
        ({"ssl_client_pem": "x"}, "a client certificate and its key are given together"),
        ({"max_records_in_buffer": 0}, "expected an integer of at least 1"),
    ],
)
def test_wrong_configuration_is_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError, match="connector out") as caught:
        output("postgresql://localhost/x", **config)
    assert said in str(caught.value)


def test_a_wrong_uri_is_not_shown() -> None:
    with pytest.raises(ConnectorError, match=r"uri: expected 'postgresql://") as caught:
        output("postgresql://me:hidden@host:port:port/x y=z")
    assert "hidden" not in str(caught.value)
