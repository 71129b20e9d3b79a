"""`postgres_output`: a PostgreSQL table equal to a view, or with the changes of it.

Rows and the number of their transaction are committed together, the number in `_penstock_transactions` beside
the table. Whatever happens to a connection, also while it commits, the number says afterwards what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING, Output
from penstock.connectors.output import postgres_table
from penstock.connectors.output.file import TRANSACTION_COLUMN
from penstock.connectors.output.keys import key_columns, net_change
from penstock.connectors.output.postgres_table import Column, PostgresTable
from penstock.connectors.postgres import TLS_FIELDS, Server
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, View

MATERIALIZED, CDC = "materialized", "cdc"

NUMBERS = "_penstock_transactions"

_FIELDS = (
    "uri",
    "table",
    "mode",
    "key_columns",
    "create_table",
    "on_conflict_do_nothing",
    "max_records_in_buffer",
    "max_buffer_size_bytes",
    "threads",
    *TLS_FIELDS,
)
_REFUSED = {
    "cdc_op_column": "the changes have the columns _change_type, _weight and _transaction",
    "cdc_ts_column": "the changes have the columns _change_type, _weight and _transaction",
    "extra_columns": "columns that the view does not have take their defaults",
}
_CHANGE_COLUMNS = (
    pa.field("_change_type", pa.string()),
    pa.field("_weight", pa.int64()),
    pa.field(TRANSACTION_COLUMN, pa.int64()),
)


class PostgresOutput(Output):
    """Writes one table."""

    def __init__(
        self,
        name: str,
        server: Server,
        table: str,
        mode: str,
        *,
        key: list[str],
        create: bool = False,
        keep: bool = False,
        max_rows: int | None = None,
        max_bytes: int = 1 << 20,
    ) -> None:
        self.name = name
        self._server = server
        self._table_name = table
        self._mode = mode
        self._key_names = key
        self._create = create
        self._keep = keep
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._id = ""
        self._owner = ""
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._table: PostgresTable | None = None
        self._columns: list[Column] = []
        self._key: list[Column] = []
        self._numbers = sql.Identifier(*table.split(".", 1)[:-1], NUMBERS)

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}"
        if connector.config.get("format") is not None:
            raise ConnectorError(f"{where}: a PostgreSQL table has its own format; remove 'format'")
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        for name, instead in _REFUSED.items():
            if name in config.values:
                raise ConnectorError(f"{config.path}.{name}: not supported; {instead}")
        config.only(_FIELDS)
        server = Server.of(config)
        mode = config.choice("mode", [MATERIALIZED, CDC], MATERIALIZED)
        key = key_columns(config)
        keep, create = (config.get(name, bool, False) for name in ("on_conflict_do_nothing", "create_table"))
        if mode == CDC and (keep or key):
            wrong = "on_conflict_do_nothing" if keep else "key_columns"
            raise ConnectorError(f"{config.path}.{wrong}: only for the mode 'materialized'")
        if mode == MATERIALIZED and create and not key:
            raise ConnectorError(
                f"{config.path}.create_table: needs 'key_columns', a list of columns that tell the rows of"
                " the view apart, or the mode 'cdc'"
            )
        config.count("threads")  # a hint of the reference API; rows are encoded by one thread here
        return cls(
            connector.name,
            server,
            config.required("table", str),
            mode,
            key=key,
            create=create,
            keep=keep,
            max_rows=config.count("max_records_in_buffer", least=1),
            max_bytes=config.count("max_buffer_size_bytes", least=1) or 1 << 20,
        )

    def open(self, owner: str, schema: pa.Schema) -> int:
        self._owner, self._id = owner, f"{owner}/{self.name}"
        self.close()
        try:
            with self._server.errors(f"connector {self.name}: cannot prepare the table {self._table_name}"):
                self._connection = self._server.connect()
                with self._connection.transaction():
                    return self._prepare(self._connection, schema)
        except ConnectorError:
            self.close()
            raise

    def write(self, transaction: int, changes: pa.Table) -> None:
        try:
            with self._server.errors(
                f"connector {self.name}: cannot write transaction {transaction} to {self._table_name}"
            ):
                if self._connection is None:
                    self._connection = self._server.connect()
                with self._connection.transaction():
                    if transaction > self._last(self._connection):
                        self._change(self._connection, transaction, changes)
        except ConnectorError:
            self.close()  # the next attempt begins with a new connection
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- the table ------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"connector {self.name}: table {self._table_name}"

    def _prepare(self, connection: psycopg.Connection[Any], schema: pa.Schema) -> int:
        # Two outputs that start at once would otherwise create the same tables.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (NUMBERS,))
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (connector text PRIMARY KEY, owner text NOT NULL,"
                " target text NOT NULL, mode text NOT NULL, transaction bigint NOT NULL)"
            ).format(self._numbers)
        )
        written = schema if self._mode == MATERIALIZED else pa.schema([*schema, *_CHANGE_COLUMNS])
        table = self._find_or_create(connection, written)
        self._table, self._columns = table, table.matched(written, self._where)
        if self._mode == MATERIALIZED:
            self._key = self._choose_key(table)
        found = connection.execute(
            sql.SQL("SELECT transaction FROM {} WHERE connector = %s AND target = %s AND mode = %s").format(
                self._numbers
            ),
            (self._id, self._table_name, self._mode),
        ).fetchone()
        if found is None:
            self._take(connection, table)
        return NOTHING if found is None else int(found[0])

    def _find_or_create(self, connection: psycopg.Connection[Any], schema: pa.Schema) -> PostgresTable:
        table = PostgresTable.find(connection, self._table_name)
        if table is None and self._create:
            spelled = {name.lower(): name for name in schema.names}
            key = [spelled.get(name.lower(), name) for name in self._key_names]
            connection.execute(postgres_table.create(self._table_name, schema, key, self._where))
            table = PostgresTable.find(connection, self._table_name)
        if table is None:
            raise ConnectorError(
                f"connector {self.name}: there is no table {self._table_name} in {self._server.shown}; create"
                " it, or set 'create_table' to true. Names are compared letter by letter, in upper and lower"
                " case."
            )
        return table

    def _choose_key(self, table: PostgresTable) -> list[Column]:
        wanted = {name.lower() for name in self._key_names}
        for names in table.keys:
            if not wanted or {name.lower() for name in names} == wanted:
                key = [column for column in self._columns if column.name in names]
                if len(key) == len(names):
                    return key
        asked = f" of the columns {', '.join(self._key_names)}" if wanted else ""
        raise ConnectorError(
            f"{self._where} has no primary key and no unique index{asked} whose columns are in the view; add"
            " one, or set 'mode' to 'cdc' to write the changes themselves"
        )

    def _take(self, connection: psycopg.Connection[Any], table: PostgresTable) -> None:
        """Make this the output that the table belongs to."""
        if self._mode == MATERIALIZED:
            others = connection.execute(
                sql.SQL("SELECT connector, owner FROM {} WHERE target = %s AND mode = %s").format(
                    self._numbers
                ),
                (self._table_name, self._mode),
            ).fetchall()
            for connector, owner in others:
                if owner == self._owner:
                    raise ConnectorError(
                        f"{self._where} is written by {connector} too; give each output its own table"
                    )
            if others:  # every row in it is from a pipeline that this one replaces
                connection.execute(sql.SQL("DELETE FROM {}").format(table.name))
            elif connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(table.name)).fetchone():
                raise ConnectorError(
                    f"{self._where} has rows that are not Penstock's; empty it, or set 'mode' to 'cdc' to"
                    " add changes to it"
                )
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE target = %s AND mode = %s").format(self._numbers),
                (self._table_name, self._mode),
            )
        connection.execute(
            sql.SQL(
                "INSERT INTO {} VALUES (%(id)s, %(owner)s, %(target)s, %(mode)s, %(last)s) ON CONFLICT"
                " (connector) DO UPDATE SET target = %(target)s, mode = %(mode)s, transaction = %(last)s"
            ).format(self._numbers),
            {
                "id": self._id,
                "owner": self._owner,
                "target": self._table_name,
                "mode": self._mode,
                "last": NOTHING,
            },
        )

    # -- transactions ---------------------------------------------------------------------------

    def _last(self, connection: psycopg.Connection[Any]) -> int:
        """The last transaction that is there. Waits for an earlier connection that is about to commit one."""
        found = connection.execute(
            sql.SQL("SELECT transaction FROM {} WHERE connector = %s FOR UPDATE").format(self._numbers),
            (self._id,),
        ).fetchone()
        if found is None:
            raise ConnectorError(f"{self._where} was taken over by another pipeline")
        return int(found[0])

    def _change(self, connection: psycopg.Connection[Any], transaction: int, changes: pa.Table) -> None:
        if self._mode == CDC:
            numbers = pa.repeat(pa.scalar(transaction, pa.int64()), changes.num_rows)
            self._run(connection, changes.append_column(TRANSACTION_COLUMN, numbers), sql.SQL(""))
        else:
            self._replace(connection, transaction, changes)
        connection.execute(
            sql.SQL("UPDATE {} SET transaction = %s WHERE connector = %s").format(self._numbers),
            (transaction, self._id),
        )

    def _replace(self, connection: psycopg.Connection[Any], transaction: int, changes: pa.Table) -> None:
        assert self._table is not None, "write comes after open"
        where = f"connector {self.name}, transaction {transaction}"
        names = [name for name in changes.column_names if name not in ("_change_type", "_weight")]
        taken = dict(zip(names, self._columns, strict=True))
        key = [name for name, column in taken.items() if column in self._key]
        for name in key:
            if changes.column(name).null_count:
                raise ConnectorError(f"{where}: the key column '{name}' is NULL; a key must have a value")
        net = net_change(changes, key, where)
        for text in postgres_table.in_json(
            net.deletes.select(key), [taken[name] for name in key], self._max_rows, self._max_bytes
        ):
            connection.execute(postgres_table.delete(self._table, [taken[name] for name in key]), (text,))
        replaces = pa.array(net.replaces, pa.bool_())
        rows = net.upserts.select(names)
        for part, keep in ((rows.filter(replaces), False), (rows.filter(pc.invert(replaces)), self._keep)):
            conflict = postgres_table.on_conflict(self._columns, self._key, keep=keep)
            self._run(connection, part, conflict)

    def _run(self, connection: psycopg.Connection[Any], rows: pa.Table, conflict: sql.Composable) -> None:
        assert self._table is not None, "write comes after open"
        statement = postgres_table.insert(self._table, self._columns, conflict)
        for text in postgres_table.in_json(rows, self._columns, self._max_rows, self._max_bytes):
            connection.execute(statement, (text,))
