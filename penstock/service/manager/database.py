"""The manager's database: SQLite in its directory, or PostgreSQL by URL."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from penstock.errors import PenstockError
from penstock.service.manager.migrations import migrate

_BUSY_SECONDS = 30
_LOCK_KEY = 0x50656E73746F636B

_DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


class DatabaseError(PenstockError):
    """The manager's database cannot be opened."""

    code = "DATABASE"


class Database:
    """Transactions that read, and transactions that write one after the other."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise DatabaseError(f"this is no URL of a database: {error}") from error
        self._held: Connection | None = None
        self._counting = threading.Lock()
        self.writes = 0
        """How often it was written to; nobody else does."""
        driver = _DRIVERS.get(parsed.drivername)
        if driver is None:
            raise DatabaseError(
                f"no database of kind {parsed.drivername!r}: use sqlite:///PATH or postgresql://HOST/NAME"
            )
        parsed = parsed.set(drivername=driver)
        self._is_sqlite = driver == "sqlite"
        if self._is_sqlite:
            self._engine = create_engine(
                parsed, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False}
            )
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        else:
            self._engine = create_engine(parsed, pool_pre_ping=True)

    def open(self) -> list[int]:
        """Bring the tables up to date; the numbers of the migrations that were done."""
        try:
            with self.write() as connection:
                return migrate(connection)
        except SQLAlchemyError as error:
            raise DatabaseError(f"the database {self._shown} cannot be opened: {error}") from error

    def hold(self) -> None:
        """One manager for a database at a time; what SQLite has is the lock of the directory. The lock goes
        with the connection, however this process ends."""
        if self._is_sqlite:
            return
        try:
            connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise DatabaseError(f"the database {self._shown} cannot be opened: {error}") from error
        self._held = connection.execution_options(isolation_level="AUTOCOMMIT")
        taken = self._held.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK_KEY})
        if not taken:
            raise DatabaseError(
                f"the database {self._shown} is in use by another manager: stop it, or use another database"
            )

    @property
    def _shown(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes: all of it, or nothing."""
        try:
            with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
                yield connection
        finally:
            with self._counting:
                self.writes += 1

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        self._engine.dispose()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own transactions would begin too late: we begin them ourselves.
    connection.isolation_level = None
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")


def _use_wal(connection: Any) -> None:
    """A new database is taken as a whole for that, and SQLite does not wait for it as for other locks."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    """A transaction that writes takes its lock at once, for one that reads first could not take it later."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
