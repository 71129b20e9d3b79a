"""A log in a database, SQLite or PostgreSQL. The row of a name holds its newest number, and whoever moves
that on by one may write the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    String,
    Table,
    Update,
    create_engine,
    delete,
    event,
    func,
    insert,
    literal,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError,
)

from penstock.errors import ShardError
from penstock.references import redacted, resolved
from penstock.shard.stores.interface import Log

_SQLITE_SECONDS = 20
_DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}

_READ_ONLY = "25006"
"""What PostgreSQL says to whoever writes to a standby."""

_METADATA = MetaData()
_HEADS = Table(
    "penstock_log_heads",
    _METADATA,
    Column("name", String(400), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
_RECORDS = Table(
    "penstock_log_records",
    _METADATA,
    Column("name", String(400), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)


class Database(Log):
    """Records as rows. Every call ends in a bounded time, or fails."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(resolved(url))
        except ArgumentError as error:
            raise ShardError("the log's URL cannot be understood: use postgresql://HOST/NAME") from error
        driver = _DRIVERS.get(parsed.drivername)
        if driver is None:
            raise ShardError(
                f"no database of kind {parsed.drivername!r}: use sqlite:///PATH or postgresql://HOST/NAME"
            )
        if driver == "sqlite" and (parsed.query or not parsed.database):
            raise ShardError("the log's URL names no file: use sqlite:///PATH, and nothing after it")
        self.label = parsed.render_as_string(hide_password=True)
        is_sqlite = driver == "sqlite"
        # A server's locks last until the end of a transaction. With one statement in each, a process that is
        # stopped or cut off never holds one that the others wait for.
        self._engine = create_engine(
            parsed.set(drivername=driver),
            connect_args={"timeout": _SQLITE_SECONDS} if is_sqlite else {},
            pool_pre_ping=not is_sqlite,
            **({} if is_sqlite else {"isolation_level": "AUTOCOMMIT"}),
        )
        if is_sqlite:
            event.listen(self._engine, "connect", _durable)
        else:
            event.listen(self._engine, "do_connect", _bounded)
        self._append = _append_in_two if is_sqlite else _append_in_one
        self._made = False

    def create(self, name: str, number: int, data: bytes) -> bool:
        with self._connection() as connection:
            appended = self._append(connection, name, number, data)
            connection.commit()
        return appended

    def numbers(self, name: str, after: int = -1) -> Sequence[int]:
        wanted = (
            select(_RECORDS.c.number)
            .where(_RECORDS.c.name == name, _RECORDS.c.number > after)
            .order_by(_RECORDS.c.number)
        )
        with self._connection() as connection:
            return [int(number) for number in connection.scalars(wanted)]

    def read(self, name: str, number: int) -> bytes | None:
        wanted = select(_RECORDS.c.data).where(_RECORDS.c.name == name, _RECORDS.c.number == number)
        with self._connection() as connection:
            found = connection.scalar(wanted)
        return None if found is None else bytes(found)

    def trim(self, name: str, below: int) -> None:
        newest = select(func.max(_RECORDS.c.number)).where(_RECORDS.c.name == name).scalar_subquery()
        with self._connection() as connection:
            connection.execute(
                delete(_RECORDS).where(
                    _RECORDS.c.name == name, _RECORDS.c.number < below, _RECORDS.c.number < newest
                )
            )
            connection.commit()

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            if not self._made:
                self._make()
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None)
            if getattr(cause, "sqlstate", None) == _READ_ONLY:
                self._engine.dispose()  # others of its connections may lead to the same server
            reason = redacted(" ".join(str(cause or error).split()))
            raise ShardError(
                f"{self.label}: {reason}. Check that the database can be reached and written to.",
                passing=_is_passing(error),
            ) from error

    def _make(self) -> None:
        """Make the tables; several may do so at once, and be faster with one and not with the other."""
        for table in _METADATA.sorted_tables:
            try:
                table.create(self._engine, checkfirst=True)
            except SQLAlchemyError:
                table.create(self._engine, checkfirst=True)  # somebody else was making it
        self._made = True


def _is_passing(error: SQLAlchemyError) -> bool:
    """Whether it may be another time: also if the server takes over from another one, or just lost to one."""
    if isinstance(error, OperationalError | InterfaceError | TimeoutError):
        return True
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or getattr(error.orig, "sqlstate", None) == _READ_ONLY
    )


def _append_in_one(connection: Connection, name: str, number: int, data: bytes) -> bool:
    """PostgreSQL: the head moves on and the record is written by one statement."""
    if number == 0:
        first = postgresql.insert(_HEADS).values(name=name, number=0).on_conflict_do_nothing()
        moved = first.returning(_HEADS.c.name).cte("moved")
    else:
        moved = _next_head(name, number).returning(_HEADS.c.name).cte("moved")
    record = select(moved.c.name, literal(number, BigInteger), literal(data, LargeBinary))
    written = insert(_RECORDS).from_select(list(_RECORDS.c.keys()), record).returning(_RECORDS.c.number)
    return connection.scalar(written) is not None


def _append_in_two(connection: Connection, name: str, number: int, data: bytes) -> bool:
    """SQLite, which has no such statement, and one lock for the whole file."""
    if number == 0:
        first = sqlite.insert(_HEADS).values(name=name, number=0).on_conflict_do_nothing()
        moved = connection.scalar(first.returning(_HEADS.c.name))
    else:
        moved = connection.scalar(_next_head(name, number).returning(_HEADS.c.name))
    if moved is None:
        return False
    connection.execute(insert(_RECORDS).values(name=name, number=number, data=data))
    return True


def _next_head(name: str, number: int) -> Update:
    before = (_HEADS.c.name == name) & (_HEADS.c.number == number - 1)
    return update(_HEADS).where(before).values(number=number)


def _bounded(_: Any, __: Any, args: Any, given: Any) -> Any:
    # Few have their log there, and it takes long to import what speaks to it.
    from penstock.shard.stores.postgres import SETTINGS, BoundedConnection

    return BoundedConnection.connect(*args, **{**given, **SETTINGS})


def _durable(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA synchronous = FULL")
