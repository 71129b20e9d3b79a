"""A log in a database whose server hangs, vanishes, or gives its work to another one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlparse

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, InterfaceError, ProgrammingError, SQLAlchemyError, TimeoutError

from penstock.errors import ShardError
from penstock.shard.stores import postgres as settings
from penstock.shard.stores.database import Database
from tests.servers import Postgres


class Forwarder:
    """Stands between client and server, and keeps all connections open when it says nothing any more."""

    def __init__(self, server: int) -> None:
        self._server = server
        self.silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in [self._listener, *self._sockets]:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.silent.is_set():
                    target.sendall(data)
        except OSError:
            return


@pytest.fixture
def forwarder(postgres: Postgres) -> Iterator[Forwarder]:
    with closing(Forwarder(postgres.port)) as found:
        yield found


@contextmanager
def read_only(postgres: Postgres, database: str) -> Iterator[None]:
    """The server refuses writes, as one does that is only a standby yet, or by now."""

    def configure(what: str) -> None:
        with psycopg.connect(postgres.uri(), autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER SYSTEM {what}")  # type: ignore[call-overload]
            connection.execute("SELECT pg_reload_conf()")

    def is_on() -> bool:
        with psycopg.connect(database) as connection:
            return connection.execute("SHOW default_transaction_read_only").fetchall() == [("on",)]

    configure("SET default_transaction_read_only = on")
    try:
        while not is_on():
            time.sleep(0.01)
        yield
    finally:
        configure("RESET default_transaction_read_only")
        while is_on():
            time.sleep(0.01)


def test_a_server_that_says_nothing_is_given_up(
    database: str, postgres: Postgres, forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel, or that of a proxy, still answers: so the network does not find out."""
    monkeypatch.setattr(settings, "SECONDS", 1)
    monkeypatch.setattr(settings, "_GRACE", 0)
    monkeypatch.setitem(settings.SETTINGS, "connect_timeout", 2)
    with closing(Database(postgres.uri(urlparse(database).path[1:], port=forwarder.port))) as log:
        assert log.create("s", 0, b"first")
        forwarder.silent.set()
        began = time.monotonic()
        with pytest.raises(ShardError, match="Check that the database can be reached") as caught:
            log.create("s", 1, b"second")
        assert caught.value.passing
        assert time.monotonic() - began < 20
        forwarder.silent.clear()
        assert log.create("s", 1, b"second")
        with log._connection() as connection:
            forwarder.silent.set()
            with pytest.raises(SQLAlchemyError, match="said nothing for 1 seconds"):
                connection.exec_driver_sql("SELECT 1")


def test_a_connection_finds_out_by_itself_that_its_server_vanished(database: str) -> None:
    with closing(Database(database)) as log, log._connection() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        descriptor = socket.socket(fileno=driver.fileno())
        try:
            found = [
                descriptor.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                    socket.TCP_USER_TIMEOUT,
                )
            ]
            assert descriptor.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        finally:
            descriptor.detach()
        assert found == [5, 5, 3, 20_000]


def test_a_server_that_cannot_be_written_to_for_a_while(database: str, postgres: Postgres) -> None:
    with closing(Database(database)) as log, closing(Database(database)) as other:
        assert log.create("s", 0, b"first")
        with read_only(postgres, database):
            with pytest.raises(ShardError, match="read-only transaction") as caught:
                log.create("s", 1, b"second")
            assert caught.value.passing
            for one in (log, other):
                with pytest.raises(ShardError, match="read-only") as caught:
                    one.numbers("s")  # a new connection: another server may be the one to write to
                assert caught.value.passing
        assert log.create("s", 1, b"second")
        assert other.numbers("s") == [0, 1]


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (InterfaceError("", None, Exception("the connection is closed")), True),
        (TimeoutError("QueuePool limit of size 5 overflow 10 reached"), True),
        (DBAPIError("", None, Exception("x"), connection_invalidated=True), True),
        (DBAPIError("", None, psycopg.errors.ReadOnlySqlTransaction("x")), True),
        (ProgrammingError("", None, Exception("no such column")), False),
    ],
)
def test_what_may_be_another_time(error: SQLAlchemyError, passing: bool) -> None:
    log = Database("sqlite:////nowhere/log.db")
    log._made = True
    log._engine.connect = lambda: (_ for _ in ()).throw(error)  # type: ignore[method-assign]
    with pytest.raises(ShardError) as caught:
        log.numbers("s")
    assert caught.value.passing == passing
