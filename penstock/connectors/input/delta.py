"""`delta_table_input`: the rows of a Delta table, and its changes version by version.

A version of a Delta table adds and removes whole Parquet files. Rows of an added file are inserted, rows of a
removed one are deleted; where the table keeps a change data feed, only the rows that changed are read. Files
never change, so a split that names one always gives the same rows, until the file is vacuumed.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from urllib.parse import unquote

import pyarrow as pa
import sqlglot
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem
from sqlglot import exp

from penstock.connectors.config import Section
from penstock.connectors.delta import Location
from penstock.connectors.formats.parquet import read_parquet, row_group_sizes
from penstock.connectors.formats.record import Rejections, Target
from penstock.connectors.interface import DELETE, INSERT, Input, Reject, Split, in_batches, with_op
from penstock.connectors.output.encode import to_json
from penstock.connectors.predicate import Predicate
from penstock.connectors.text import parse_text
from penstock.errors import ConnectorError, UnreachableError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = "delta"

SNAPSHOT, FOLLOW, BOTH, CDC = "snapshot", "follow", "snapshot_and_follow", "cdc"

_LARGE = 32 << 20
"""A file with more bytes is handed out by row groups."""

_LOOK_SECONDS = 0.5
"""How often a followed table is asked for new versions."""

_FIELDS = (
    "uri",
    "mode",
    "version",
    "datetime",
    "end_version",
    "filter",
    "snapshot_filter",
    "timestamp_column",
    "cdc_delete_filter",
    "cdc_order_by",
    "transaction_mode",
    "max_retries",
    "max_concurrent_readers",
    "num_parsers",
    "skip_unused_columns",
    "verbose",
)
_CHANGE_TYPE = pa.field("_change_type", pa.string())
_OLD = "_change_type IN ('delete', 'update_preimage')"
_NEW = "_change_type IN ('insert', 'update_postimage')"
_UNREADABLE = ("columnMapping", "deletionVectors", "typeWidening")


@dataclass(frozen=True)
class File:
    """A data file; `path` is relative to the table, `partition` has the values that the file leaves out."""

    path: str
    partition: Mapping[str, str | None]
    size: int
    rows: int | None


@dataclass
class Place:
    """How far the table was read. Before the first poll there is no version."""

    version: int | None = None
    """The version of the snapshot while that is read, then the last version that was."""
    file: int | None = None
    """The next file of the snapshot; None when there is none left."""
    part: int = 0
    """The next part of that file."""

    @property
    def part_of(self) -> tuple[int, int]:
        """Where in a snapshot it is."""
        return (self.file or 0, self.part)


@dataclass(frozen=True)
class Settings:
    """What the configuration says beyond where the table is."""

    mode: str
    version: int | None
    datetime: str | None
    end_version: int | None
    filter: Predicate | None
    snapshot_filter: Predicate | None
    timestamp_column: str | None
    delete_filter: Predicate | None
    order_by: tuple[tuple[str, str], ...]
    max_retries: int | None


class DeltaInput(Input):
    """Hands out the files of a snapshot, then those of each new version."""

    def __init__(self, name: str, location: Location, settings: Settings, *, key: tuple[str, ...]) -> None:
        self.name = name
        self._location = location
        self._settings = settings
        self._key = list(key)
        self._place = Place()
        self._table: DeltaTable | None = None
        self._snapshot: list[File] | None = None
        self._looked = float("-inf")
        self._failures = 0

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        if connector.config.get("format") is not None:
            raise ConnectorError(f"{where}: a Delta table has its own format; remove 'format'")
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        location = Location.of(config, _FIELDS, literal_secrets=False)
        return cls(connector.name, location, _settings(config), key=table.primary_key)

    def poll(self, max_rows: int) -> list[Split]:
        with self._errors():
            table = self._opened()
            before = replace(self._place)
            try:
                splits = self._next_files(table, max_rows) or self._next_versions(table, max_rows)
            except BaseException:
                self._place = before  # what was found on the way is found again
                raise
        self._failures = 0
        return splits

    @property
    def ended(self) -> bool:
        place, settings = self._place, self._settings
        if place.version is None or place.file is not None:
            return False
        end = settings.end_version
        return settings.mode == SNAPSHOT or (end is not None and place.version >= end)

    @property
    def position(self) -> Any:
        return asdict(self._place)

    def has_reached(self, position: Any, earlier: Any) -> bool:
        now, then = Place(**position), Place(**earlier)
        if now.version is None or then.version is None:
            return then.version is None
        if now.file is None:
            return now.version >= then.version
        return now.version == then.version and then.file is not None and now.part_of >= then.part_of

    def seek(self, position: Any) -> None:
        self._place = Place(**position)
        self._table = self._snapshot = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._location.errors(f"connector {self.name}: cannot read the Delta table"):
                yield
        except UnreachableError as error:
            self._failures += 1
            if self._settings.max_retries is not None and self._failures > self._settings.max_retries:
                raise ConnectorError(f"{error} (tried {self._failures} times: max_retries)") from error
            raise

    # -- the table ------------------------------------------------------------------------------

    def _opened(self) -> DeltaTable:
        """The table; at first in the version where the input begins."""
        if self._table is not None:
            return self._table
        settings, place = self._settings, self._place
        table = self._location.table(settings.version if place.version is None else place.version)
        if table is None:
            raise ConnectorError(f"connector {self.name}: there is no Delta table at {self._location.uri}")
        if place.version is None and settings.datetime is not None:
            table.load_as_version(settings.datetime)
        self._check(table)
        if place.version is None:
            whole = settings.mode in (SNAPSHOT, BOTH)
            self._place = Place(table.version(), 0 if whole else None)
        self._table = table
        return table

    def _check(self, table: DeltaTable) -> None:
        protocol = table.protocol()
        features = [*(protocol.reader_features or []), *(protocol.writer_features or [])]
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        unknown = sorted({name for name in features if name in _UNREADABLE and name != "columnMapping"})
        if mapped or unknown:
            names = ", ".join([*(["columnMapping"] if mapped else []), *unknown])
            raise ConnectorError(
                f"connector {self.name}: the Delta table {self._location.uri} uses {names}, which this input"
                " does not read; rewrite the table without"
            )
        schema = _columns(table)
        for predicate in (
            self._settings.filter,
            self._settings.snapshot_filter,
            self._settings.delete_filter,
        ):
            if predicate is not None:
                predicate.over(schema)
        known = {name.lower() for name in schema.names}
        for name in [self._settings.timestamp_column, *(name for name, _ in self._settings.order_by)]:
            if name is not None and name.lower() not in known:
                raise ConnectorError(
                    f"connector {self.name}: the Delta table {self._location.uri} has no column '{name}'"
                )

    # -- the snapshot ---------------------------------------------------------------------------

    def _next_files(self, table: DeltaTable, max_rows: int) -> list[Split]:
        place = self._place
        if place.file is None:
            return []
        if self._snapshot is None:
            self._snapshot = self._files(table)
        splits: list[Split] = []
        left = max_rows
        filters = [p for p in (self._settings.filter, self._settings.snapshot_filter) if p is not None]
        while left > 0 and place.file < len(self._snapshot):
            parts = self._parts(self._snapshot[place.file])
            splits.append(self._split(table, [parts[place.part]], INSERT, filters, parts[place.part]["rows"]))
            left -= parts[place.part]["rows"] or 1
            place.part += 1
            if place.part == len(parts):
                place.file, place.part = place.file + 1, 0
        if place.file == len(self._snapshot):
            place.file = None
        return splits

    def _files(self, table: DeltaTable) -> list[File]:
        """The files of the table's version, in an order that depends on nothing else."""
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        column = self._settings.timestamp_column
        first = next((n for n in rows[0] if n.lower() == f"min.{column}".lower()), "") if rows else ""
        rows.sort(key=lambda row: (row.get(first) is None, row.get(first) or 0, row["path"]))
        return [
            File(
                unquote(row["path"]),
                {name[10:]: _text(value) for name, value in row.items() if name.startswith("partition.")},
                row["size_bytes"],
                row["num_records"],
            )
            for row in rows
        ]

    def _parts(self, file: File) -> list[dict[str, Any]]:
        """What one task reads of a file: all of it, or one row group of a large one."""
        whole = {"path": file.path, "partition": dict(file.partition), "rows": file.rows}
        if file.size <= _LARGE:
            return [{**whole, "row_groups": None, "before": 0}]
        with _still_there(self._location, file.path) as opened:
            sizes = row_group_sizes(opened)
        return [
            {**whole, "row_groups": [group], "before": sum(sizes[:group]), "rows": size}
            for group, size in enumerate(sizes)
        ]

    # -- versions -------------------------------------------------------------------------------

    def _next_versions(self, table: DeltaTable, max_rows: int) -> list[Split]:
        """Whole versions: half of one would be a state that the table never had."""
        if self.ended or time.monotonic() - self._looked < _LOOK_SECONDS:
            return []
        table.update_incremental()
        self._check(table)
        splits: list[Split] = []
        left, last = max_rows, self._place.version
        assert last is not None, "a version was chosen before"
        while left > 0 and last < table.version() and not self.ended:
            found = self._version(table, last + 1)
            splits += found
            left -= sum(split.rows or 1 for split in found)
            last += 1
            self._place = Place(last)
        if last == table.version():
            self._looked = time.monotonic()
        return splits

    def _version(self, table: DeltaTable, version: int) -> list[Split]:
        name = f"_delta_log/{version:020}.json"
        try:
            with open_file(self._location, name) as log:
                actions = [json.loads(line) for line in log.read().splitlines() if line]
        except FileNotFoundError:
            raise ConnectorError(
                f"connector {self.name}: version {version} of {self._location.uri} is no longer in its log;"
                " start the pipeline anew from a snapshot, and keep the log longer"
                " (delta.logRetentionDuration)"
            ) from None
        by_kind = {
            kind: [self._file(action[kind], version) for action in actions if _counts(action, kind)]
            for kind in ("add", "remove", "cdc")
        }
        filters = [] if self._settings.filter is None else [self._settings.filter]
        if self._settings.mode == CDC:
            parts = [part for file in by_kind["add"] for part in self._parts(file)]
            return (
                [self._split(table, parts, CDC, filters, sum(p["rows"] or 1 for p in parts))] if parts else []
            )
        if by_kind["cdc"]:
            # Old images first: with a primary key the last row for a key wins.
            return [
                self._split(table, [part], op, [*filters, Predicate(images, "change data")], part["rows"])
                for images, op in ((_OLD, DELETE), (_NEW, INSERT))
                for file in by_kind["cdc"]
                for part in self._parts(file)
            ]
        return [
            self._split(table, [part], op, filters, part["rows"])
            for kind, op in (("remove", DELETE), ("add", INSERT))
            for file in by_kind[kind]
            for part in self._parts(file)
        ]

    def _file(self, action: Mapping[str, Any], version: int) -> File:
        if action.get("deletionVector") or "://" in action["path"] or action.get("partitionValues") is None:
            raise ConnectorError(
                f"connector {self.name}: version {version} of {self._location.uri} names {action['path']}"
                " with a deletion vector, outside of the table or without its partition: it is not read by"
                " this input"
            )
        stats = json.loads(action.get("stats") or "{}")
        partition = {name: value or None for name, value in action["partitionValues"].items()}
        return File(unquote(action["path"]), partition, action.get("size") or 0, stats.get("numRecords"))

    def _split(
        self,
        table: DeltaTable,
        parts: list[dict[str, Any]],
        op: int | str,
        filters: list[Predicate],
        rows: int | None,
    ) -> Split:
        settings = self._settings
        schema = pa.schema([*_columns(table), _CHANGE_TYPE])
        asked = {column for predicate in filters for column in predicate.columns}
        if op == CDC:
            asked |= {name.lower() for name, _ in settings.order_by}
            asked |= settings.delete_filter.columns if settings.delete_filter is not None else set()
        payload: dict[str, Any] = {
            "uri": self._location.uri,
            "options": dict(self._location.options),
            "key": self._key,
            "files": [{key: value for key, value in part.items() if key != "rows"} for part in parts],
            "op": op,
            "asked": _packed(pa.schema([field for field in schema if field.name.lower() in asked])),
            "filters": [predicate.text for predicate in filters],
        }
        if op == CDC:
            payload["delete_filter"] = None if settings.delete_filter is None else settings.delete_filter.text
            payload["order_by"] = [list(order) for order in settings.order_by]
        return Split(SOURCE, payload, rows)


# -- configuration --------------------------------------------------------------------------------


def _settings(config: Section) -> Settings:
    modes = [SNAPSHOT, FOLLOW, BOTH, CDC]
    config.required("mode", str)
    mode = config.choice("mode", modes, "")
    for name, allowed in (
        ("end_version", modes[1:]),
        ("snapshot_filter", [SNAPSHOT, BOTH]),
        ("timestamp_column", [SNAPSHOT, BOTH]),
        ("cdc_delete_filter", [CDC]),
        ("cdc_order_by", [CDC]),
    ):
        if config.values.get(name) is not None and mode not in allowed:
            raise ConnectorError(f"{config.path}.{name}: only for the modes {', '.join(allowed)}")
    if config.values.get("version") is not None and config.values.get("datetime") is not None:
        raise ConnectorError(f"{config.path}: give only one of version and datetime")
    if config.get("transaction_mode", str, "none") != "none":
        raise ConnectorError(
            f"{config.path}.transaction_mode: not supported; a version is always in one transaction"
        )
    # Hints of the reference API: tasks read files in parallel, and only columns that the table has.
    for name in ("max_concurrent_readers", "num_parsers", "verbose"):
        config.count(name)
    config.optional("skip_unused_columns", bool)
    return Settings(
        mode,
        config.count("version"),
        config.optional("datetime", str),
        config.count("end_version"),
        _predicate(config, "filter"),
        _predicate(config, "snapshot_filter"),
        config.optional("timestamp_column", str),
        _predicate(config, "cdc_delete_filter"),
        _order(config),
        config.count("max_retries"),
    )


def _predicate(config: Section, name: str) -> Predicate | None:
    text = config.optional(name, str)
    return None if text is None else Predicate(text, f"{config.path}.{name}")


def _order(config: Section) -> tuple[tuple[str, str], ...]:
    text = config.optional("cdc_order_by", str)
    if text is None:
        return ()
    wrong = ConnectorError(
        f"{config.path}.cdc_order_by: expected columns with ASC or DESC, such as 'a, b DESC', found {text!r}"
    )
    try:
        query = sqlglot.parse_one(f"SELECT 1 ORDER BY {text}", dialect="spark")
    except sqlglot.ParseError as error:
        raise wrong from error
    terms = query.args["order"].expressions
    if any(not isinstance(term.this, exp.Column) for term in terms):
        raise wrong
    return tuple((term.this.name, "descending" if term.args.get("desc") else "ascending") for term in terms)


def _columns(table: DeltaTable) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in pa.schema(table.schema().to_arrow())])


def _counts(action: Mapping[str, Any], kind: str) -> bool:
    """Whether the action changes what the table holds; compaction does not."""
    return kind in action and (kind == "cdc" or action[kind].get("dataChange", True))


def _text(value: Any) -> str | None:
    """A partition's value as the log has it."""
    if value is None or isinstance(value, str):
        return value or None
    return str(value).lower() if isinstance(value, bool) else str(to_json(value))


def _packed(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


# -- reading --------------------------------------------------------------------------------------


def open_file(location: Location, path: str) -> BinaryIO:
    """A file of the table; `FileNotFoundError` if it is not there."""
    if location.local:
        return open(f"{location.uri}/{path}", "rb")
    handler = DeltaStorageHandler(location.uri, location.storage_options())
    opened: BinaryIO = PyFileSystem(handler).open_input_file(path)
    return opened


def _still_there(location: Location, path: str) -> BinaryIO:
    try:
        return open_file(location, path)
    except FileNotFoundError:
        raise ConnectorError(
            f"{location.uri}/{path} is gone: it was vacuumed before it was read. Start the pipeline anew from"
            " a snapshot, and keep removed files longer (delta.deletedFileRetentionDuration)."
        ) from None


def read_delta(
    payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of some files that satisfy the filters."""
    location = Location(payload["uri"], payload["options"])
    asked = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(payload["asked"])))
    wider = pa.schema([*schema, *(field for field in asked if _find(schema, field.name) is None)])
    conditions = [Predicate(text, "filter").over(wider) for text in payload["filters"]]

    def rows() -> Iterator[pa.RecordBatch]:
        for file in payload["files"]:
            for batch in _read_file(location, file, Target(wider, payload["key"], defaults), reject):
                table = pa.Table.from_batches([batch])
                for condition in conditions:
                    table = table.filter(condition)
                yield from in_batches(table)

    if payload["op"] == CDC:
        yield from _in_order(list(rows()), wider, schema, payload)
        return
    for batch in rows():
        yield with_op(batch.select(schema.names), payload["op"])


def _read_file(
    location: Location, file: Mapping[str, Any], target: Target, reject: Reject
) -> Iterator[pa.RecordBatch]:
    label = f"{location.uri}/{file['path']}"
    known: dict[str, Any] = {}
    for name, value in file["partition"].items():
        field = _find(target.schema, name)
        if field is not None and (value is not None or field.nullable):
            known[field.name] = (
                None if value is None else parse_text(pa.array([value]), field.type)[0].as_py()
            )
    target = Target(target.schema, target.key, {**target.defaults, **known})
    try:
        with location.errors("cannot read the Delta table"), _still_there(location, file["path"]) as opened:
            groups = file["row_groups"]
            if groups is None:
                groups = range(len(row_group_sizes(opened)))
            rejections = Rejections(label, "row", file["before"], reject)
            yield from read_parquet(opened, list(groups), target, rejections)
    except pa.ArrowException as error:
        raise ConnectorError(f"cannot read {label}: {error}") from error


def _in_order(
    batches: list[pa.RecordBatch], wider: pa.Schema, schema: pa.Schema, payload: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of one version of a table of changes."""
    if not batches:
        return
    table = pa.Table.from_batches(batches).combine_chunks()
    order = [(_find(wider, name).name, direction) for name, direction in payload["order_by"]]
    if order:
        table = table.sort_by(order)
    ops = pa.repeat(pa.scalar(INSERT, pa.int8()), table.num_rows)
    if payload["delete_filter"] is not None:
        deleted = Predicate(payload["delete_filter"], "cdc_delete_filter").over(wider)
        ops = _ops(table, deleted)
    for start, batch in _numbered(table.select(schema.names)):
        yield with_op(batch, ops.slice(start, batch.num_rows))


def _ops(table: pa.Table, deleted: Any) -> pa.Array:
    position = pa.array(range(table.num_rows), pa.int64())
    gone = table.append_column("_position", position).filter(deleted).column("_position").to_pylist()
    ops = [INSERT] * table.num_rows
    for row in gone:
        ops[row] = DELETE
    return pa.array(ops, pa.int8())


def _numbered(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for batch in in_batches(table):
        yield start, batch
        start += batch.num_rows


def _find(schema: pa.Schema, name: str) -> Any:
    return next((field for field in schema if field.name.lower() == name.lower()), None)
