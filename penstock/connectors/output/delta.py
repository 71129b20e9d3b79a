"""`delta_table_output`: the changes of a view as rows of a Delta table, or a Delta table equal to the view.

One transaction of the pipeline is one commit of the table. The commit carries the number as the table's
*application transaction*, so the table itself knows what it has: data files whose commit never came are
not part of it, and a second commit with the same number is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
    write_deltalake,
)

from penstock.connectors.config import Section
from penstock.connectors.delta import Location, plain
from penstock.connectors.interface import NOTHING, Output
from penstock.connectors.misfit import is_variant, sql_name
from penstock.connectors.output.file import TRANSACTION_COLUMN
from penstock.connectors.output.keys import NetChange, key_columns, net_change
from penstock.errors import ConnectorError, UnreachableError
from penstock.storage.files import sync_directory

if TYPE_CHECKING:
    from penstock.sql import Connector, View

APPEND, TRUNCATE, ERROR_IF_EXISTS, MIRROR = "append", "truncate", "error_if_exists", "mirror"

_OWNER = "penstock.owner"
"""Property of a table that one connector has for itself: which one."""

_FIELDS = (
    "uri",
    "mode",
    "key_columns",
    "checkpoint_interval",
    "enable_expired_log_cleanup",
    "log_retention_duration",
    "max_retries",
    "threads",
)
_FORGETS = "delta.setTransactionRetentionDuration"
_UNREADABLE = re.compile(r"[ ,;{}()\n\t=]")


class DeltaOutput(Output):
    """Commits each transaction to one table."""

    def __init__(
        self,
        name: str,
        location: Location,
        mode: str,
        *,
        key: Sequence[str] = (),
        properties: dict[str, str] | None = None,
        max_retries: int | None = None,
    ) -> None:
        self.name = name
        self._location = location
        self._mode = mode
        self._key = list(key)
        self._properties = properties or {}
        self._max_retries = max_retries
        self._failures = 0
        self._app = ""
        self._table: DeltaTable | None = None
        self._durable = -1

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}"
        if connector.config.get("format") is not None:
            raise ConnectorError(f"{where}: a Delta table has its own format; remove 'format'")
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        location = Location.of(config, _FIELDS, literal_secrets=True)
        mode = config.choice("mode", [APPEND, TRUNCATE, ERROR_IF_EXISTS, MIRROR], APPEND)
        key = key_columns(config)
        if mode == MIRROR and not key:
            raise ConnectorError(
                f"{config.path}: 'mirror' needs 'key_columns', a list of columns that tell the rows of the"
                " view apart; to write the changes themselves set 'mode' to 'append'"
            )
        if mode != MIRROR and key:
            raise ConnectorError(f"{config.path}.key_columns: only for the mode 'mirror', found '{mode}'")
        config.count("threads", least=1)  # a hint of the reference API; a commit is written as a whole here
        return cls(
            connector.name,
            location,
            mode,
            key=key,
            properties=_properties(config),
            max_retries=config.count("max_retries"),
        )

    def open(self, owner: str, schema: pa.Schema) -> int:
        self._app = f"penstock:{owner}/{self.name}"
        self._key = [self._column(schema, name) for name in self._key]
        wanted = self._table_schema(schema)
        with self._errors():
            table = self._location.table()
            if table is None:
                table, last = self._create(wanted), None
            elif (last := self._last(table)) is None:
                self._take(table, wanted)
            else:
                self._check_columns(table, wanted)
            self._table, self._durable = table, table.version() - 1
            self._make_durable(table)
            return NOTHING if last is None else last

    def write(self, transaction: int, changes: pa.Table) -> None:
        assert self._table is not None, "write comes after open"
        table = self._table
        with self._errors():
            table.update_incremental()
            last = self._last(table)
            if last is None:
                raise ConnectorError(
                    f"connector {self.name}: {self._location.uri} was taken over by another pipeline"
                )
            if transaction <= last:
                pass  # an earlier attempt got so far
            elif self._mode == MIRROR:
                self._merge(table, transaction, changes)
            else:
                numbers = pa.repeat(pa.scalar(transaction, pa.int64()), changes.num_rows)
                self._append(table, transaction, changes.append_column(TRANSACTION_COLUMN, numbers))
            self._make_durable(table)
        self._failures = 0

    def _make_durable(self, table: DeltaTable) -> None:
        """An object store does it by itself."""
        if self._location.local:
            for version in range(self._durable + 1, table.version() + 1):
                _sync(Path(self._location.uri), version)
        self._durable = table.version()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._location.errors(f"connector {self.name}: cannot write the Delta table"):
                yield
        except UnreachableError as error:
            self._failures += 1
            if self._max_retries is not None and self._failures > self._max_retries:
                raise ConnectorError(f"{error} (tried {self._failures} times: max_retries)") from error
            raise

    # -- the table ------------------------------------------------------------------------------

    def _create(self, wanted: pa.Schema) -> DeltaTable:
        return DeltaTable.create(
            self._location.uri,
            wanted,
            mode="error",
            configuration=self._owned() | self._properties,
            raise_if_key_not_exists=False,
            storage_options=self._location.storage_options(),
            commit_properties=self._commit(NOTHING),
        )

    def _last(self, table: DeltaTable) -> int | None:
        """The last transaction that the table has of this connector; None if it is not its table yet."""
        properties = table.metadata().configuration
        if _FORGETS in properties:
            raise ConnectorError(
                f"connector {self.name}: {self._location.uri} has the property {_FORGETS}: it forgets which"
                " transactions it has; remove the property"
            )
        if properties.get(_OWNER, self._app) != self._app:
            return None
        return table.transaction_version(self._app)

    def _take(self, table: DeltaTable, wanted: pa.Schema) -> None:
        """Make a table ready that was there before."""
        uri, owner = self._location.uri, table.metadata().configuration.get(_OWNER)
        if self._mode == ERROR_IF_EXISTS:
            raise ConnectorError(
                f"connector {self.name}: there is a Delta table at {uri} already; remove it, or set 'mode' to"
                " 'append' or 'truncate'"
            )
        if self._mode == APPEND:
            if owner is not None:
                raise ConnectorError(
                    f"connector {self.name}: the Delta table {uri} belongs to another output ({owner}), which"
                    " replaces what others write; give this one a table of its own"
                )
            self._check_columns(table, wanted)
            # The number makes the table this connector's own: from now on a missing one means foul play.
            self._append(table, NOTHING, wanted.empty_table())
            return
        if self._mode == MIRROR and owner is None and table.count():
            raise ConnectorError(
                f"connector {self.name}: the Delta table {uri} has rows that are not Penstock's; remove it,"
                " or set 'mode' to 'append' to add to it"
            )
        # First the property: if the second commit never comes, no number says that the table is this one's.
        table.alter.set_table_properties(self._owned() | self._properties, raise_if_not_exists=False)
        write_deltalake(
            table,
            wanted.empty_table(),
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=self._commit(NOTHING),
        )

    def _owned(self) -> dict[str, str]:
        return {_OWNER: self._app} if self._mode in (TRUNCATE, MIRROR) else {}

    def _commit(self, transaction: int) -> CommitProperties:
        return CommitProperties(app_transactions=[Transaction(self._app, transaction)])

    def _after(self) -> PostCommitHookProperties | None:
        never = self._properties.get("delta.checkpointInterval") == _NEVER
        return PostCommitHookProperties(create_checkpoint=False) if never else None

    # -- columns --------------------------------------------------------------------------------

    def _column(self, schema: pa.Schema, name: str) -> str:
        found = next((field for field in schema if field.name.lower() == name.lower()), None)
        if found is None:
            raise ConnectorError(
                f"connector {self.name}: the view has no column '{name}' (key_columns);"
                f" it has {', '.join(schema.names)}"
            )
        if pt.is_nested(found.type) or pt.is_floating(found.type):
            raise ConnectorError(
                f"connector {self.name}: column '{found.name}' of type {sql_name(found.type)} cannot be one"
                " of 'key_columns'"
            )
        return str(found.name)

    def _table_schema(self, schema: pa.Schema) -> pa.Schema:
        fields = [field.with_nullable(True) for field in schema]
        if self._mode != MIRROR:
            fields += [
                pa.field("_change_type", pa.string()),
                pa.field("_weight", pa.int64()),
                pa.field(TRANSACTION_COLUMN, pa.int64()),
            ]
        for field in fields:
            self._check_storable(field)
        return pa.schema(fields)

    def _check_storable(self, field: pa.Field) -> None:
        column = f"connector {self.name}: column '{field.name}'"
        if _UNREADABLE.search(field.name):
            raise ConnectorError(
                f"{column}: names in a Delta table have no spaces and none of ,;{{}}()=; give it an alias"
            )
        if pt.is_null(field.type) or is_variant(field.type):
            raise ConnectorError(f"{column}: a Delta table cannot hold {sql_name(field.type)}; cast it")
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:  # deltalake raises no narrower class here
            raise ConnectorError(
                f"{column}: a Delta table cannot hold {sql_name(field.type)}; cast it ({plain(error)})"
            ) from error

    def _check_columns(self, table: DeltaTable, wanted: pa.Schema) -> None:
        """Arrow would convert without a word; the table must have the view's columns and types."""
        there, here = _types(table.schema()), _types(Schema.from_arrow(wanted))
        if there != here:
            different = [
                f"{name} ({there.get(name, 'not there')}, expected {here.get(name, 'no such column')})"
                for name in [*here, *(name for name in there if name not in here)]
                if there.get(name) != here.get(name)
            ]
            raise ConnectorError(
                f"connector {self.name}: the Delta table {self._location.uri} has other columns than the"
                f" view: {', '.join(different)}"
            )

    # -- commits --------------------------------------------------------------------------------

    def _append(self, table: DeltaTable, transaction: int, rows: pa.Table) -> None:
        write_deltalake(
            table,
            rows.select([field.name for field in table.schema().fields]),
            mode="append",
            commit_properties=self._commit(transaction),
            post_commithook_properties=self._after(),
        )

    def _merge(self, table: DeltaTable, transaction: int, changes: pa.Table) -> None:
        names = [name for name in changes.column_names if name not in ("_change_type", "_weight")]
        net = net_change(changes, self._key, f"connector {self.name}, transaction {transaction}")
        values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        same_key = " AND ".join(
            f"(t.{_quoted(name)} IS NOT DISTINCT FROM s.{_quoted(name)})" for name in self._key
        )
        done = (
            table.merge(
                _source(net, names),
                same_key,
                source_alias="s",
                target_alias="t",
                commit_properties=self._commit(transaction),
                post_commithook_properties=self._after(),
            )
            .when_matched_delete("s._change_type = 'delete'")
            .when_matched_update(values, "s._change_type = 'upsert'")
            .when_not_matched_insert(values, "s._change_type = 'upsert'")
            .execute()
        )
        found = {kind: done[f"num_target_rows_{kind}"] for kind in ("inserted", "updated", "deleted")}
        expected = {"inserted": net.inserts, "updated": net.updates, "deleted": net.deletes.num_rows}
        if found != expected:
            raise ConnectorError(
                f"connector {self.name}: after transaction {transaction} the Delta table {self._location.uri}"
                f" may differ from the view: {found}, expected {expected}. Either the columns"
                f" {', '.join(self._key)} do not tell the rows of the view apart, or someone else changed the"
                " table."
            )


_NEVER = str(2**31 - 1)


def _properties(config: Section) -> dict[str, str]:
    """The table properties of a new table."""
    properties = {}
    interval = config.count("checkpoint_interval")
    if interval is not None:
        properties["delta.checkpointInterval"] = str(interval or _NEVER)
    cleanup = config.optional("enable_expired_log_cleanup", bool)
    if cleanup is not None:
        properties["delta.enableExpiredLogCleanup"] = str(cleanup).lower()
    retention = config.optional("log_retention_duration", str)
    if retention is not None:
        if not re.fullmatch(
            r"interval \d+ (nano|micro|milli)?seconds?|interval \d+ (minute|hour|day|week)s?", retention
        ):
            raise ConnectorError(
                f"{config.path}.log_retention_duration: expected 'interval <number> <unit>', such as"
                f" 'interval 30 days', found {retention!r}"
            )
        properties["delta.logRetentionDuration"] = retention
    return properties


def _source(net: NetChange, names: Sequence[str]) -> pa.Table:
    kinds = ["upsert"] * net.upserts.num_rows + ["delete"] * net.deletes.num_rows
    rows = pa.concat_tables([net.upserts.select(names), net.deletes.select(names)])
    return rows.append_column("_change_type", pa.array(kinds, pa.string()))


def _types(schema: Schema) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema.to_json())["fields"]}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sync(table: Path, version: int) -> None:
    """Bring one commit of a local table onto the disk: its data, then its entry in the log."""
    log = table / "_delta_log"
    entry = log / f"{version:020}.json"
    if not entry.exists():
        return  # old enough to be part of a checkpoint only
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    files = [
        table / unquote(action[kind]["path"])
        for action in actions
        for kind in ("add", "cdc")
        if kind in action
    ]
    for path in [*files, entry]:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # a later version took it away
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for directory in {*(path.parent for path in files if path.parent.exists()), table, log}:
        sync_directory(directory)
