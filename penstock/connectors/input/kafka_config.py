"""What the configuration of `kafka_input` says beside the options of librdkafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from penstock.connectors.config import Section
from penstock.connectors.formats.messages import check_raw, message_settings
from penstock.connectors.kafka import Topics
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

METADATA: Mapping[str, tuple[str, tuple[DataType, ...]]] = {
    "kafka_topic": ("include_topic", (StringType(),)),
    "kafka_partition": ("include_partition", (IntegerType(), LongType())),
    "kafka_offset": ("include_offset", (LongType(),)),
    "kafka_timestamp": ("include_timestamp", (TimestampType(),)),
    "kafka_headers": (
        "include_headers",
        (MapType(StringType(), BinaryType()), MapType(StringType(), StringType())),
    ),
}
"""What CONNECTOR_METADATA() has of a message, the field that asks for it, and the types a column may have."""

FIELDS = (
    "topic",
    "topics",
    "start_from",
    "partitions",
    "resume_earliest_if_data_expires",
    "envelope",
    "key_format",
    "log_level",
    "group_join_timeout_secs",
    "poller_threads",
    "header_filter",
    "region",
    "synchronize_partitions",
    *(flag for flag, _ in METADATA.values()),
)
"""Those of the reference, and `topics`, `envelope` and `key_format`."""

FIXED = {
    "auto.offset.reset": "use start_from, which says where to begin",
    "enable.auto.commit": "offsets are committed to the group when a transaction is durable",
    "enable.auto.offset.store": "offsets are committed to the group when a transaction is durable",
    "enable.partition.eof": "ranges of offsets are read by way of it",
}

_REFUSED = {
    "region": "IAM of AWS is not supported; use SASL",
    "header_filter": "give the table a column with CONNECTOR_METADATA()['kafka_headers'], and filter a view",
}

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Start:
    """Where to begin with partitions that were not read before."""

    kind: str
    numbers: Sequence[int] = ()

    @classmethod
    def of(cls, config: Section) -> Start:
        value = config.values.get("start_from", EARLIEST)
        if value in (EARLIEST, LATEST):
            return cls(value)
        if isinstance(value, dict) and len(value) == 1:
            kind, numbers = next(iter(value.items()))
            if kind == "timestamp" and _is_count(numbers):
                return cls(kind, [numbers])
            if kind == "offsets" and isinstance(numbers, list) and all(_is_count(n) for n in numbers):
                return cls(kind, numbers)
        raise ConnectorError(
            f"{config.path}.start_from: expected 'earliest', 'latest', {{\"offsets\": [...]}} or"
            f' {{"timestamp": milliseconds}}, found {value!r}'
        )

    @property
    def is_of_the_moment(self) -> bool:
        """Whether it means something else later."""
        return self.kind in (LATEST, "timestamp")

    def offsets(
        self, places: Sequence[tuple[str, int]], topics: Topics, committed: bool
    ) -> dict[tuple[str, int], int]:
        """The offsets of the first messages."""
        if self.kind == EARLIEST:
            return topics.starts(places)
        if self.kind == LATEST:
            return topics.ends(places, committed=committed)
        if self.kind == "timestamp":
            return topics.since(places, self.numbers[0], committed=committed)
        if len(self.numbers) != len(places):
            raise ConnectorError(
                f"start_from: {len(self.numbers)} offsets are given for {len(places)} partitions of the topic"
                f" {places[0][0]}; give one for each, or name the partitions with 'partitions'"
            )
        return dict(zip(places, self.numbers, strict=True))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def reading_of(connector: Connector, config: Section, table: Table) -> dict[str, Any]:
    """What a task needs to make rows of messages."""
    where = f"connector {connector.name}"
    for name, reason in _REFUSED.items():
        if config.values.get(name) is not None:
            raise ConnectorError(f"{config.path}.{name}: {reason}")
    level = config.values.get("isolation.level", "read_committed")
    if str(level).lower() not in ("read_committed", "read_uncommitted"):
        raise ConnectorError(
            f"{config.path}.isolation.level: expected read_committed or read_uncommitted, found {level!r}"
        )
    if config.get("synchronize_partitions", bool, False):
        raise ConnectorError(
            f"{config.path}.synchronize_partitions: rows are kept however late they come; remove it"
        )
    for name in ("group_join_timeout_secs", "poller_threads"):
        config.count(name)  # hints of the reference API; there is no group to join, and tasks do the reading
    metadata = _metadata(config, table)
    upsert = config.choice("envelope", ["none", "upsert"], "none") == "upsert"
    settings = message_settings(where, connector.config.get("format"))
    found: dict[str, Any] = {"format": settings, "key": list(table.primary_key), "metadata": metadata}
    schema = to_arrow_schema(table.schema, timezone="UTC")
    own = [f for f in schema if f.name not in metadata]
    if not upsert:
        if config.values.get("key_format") is not None:
            raise ConnectorError(f"{config.path}.key_format: only with 'envelope' set to 'upsert'")
        check_raw(f"{where}: format.config", settings, pa.schema(own))
        return found
    if not table.primary_key:
        raise ConnectorError(
            f"{config.path}.envelope: 'upsert' needs a table with a PRIMARY KEY; its columns are the keys of"
            " messages"
        )
    key = {name.lower() for name in table.primary_key}
    if wrong := [name for name in metadata if name.lower() in key]:
        raise ConnectorError(f"{where}: the column {wrong[0]} of the key cannot come from the metadata")
    _refuse_wrapped(where, settings)
    keys = message_settings(f"{where}: key_format", config.values.get("key_format"), settings)
    _refuse_wrapped(f"{where}: key_format", keys)
    check_raw(f"{where}: key_format.config", keys, pa.schema([f for f in own if f.name.lower() in key]))
    check_raw(f"{where}: format.config", settings, pa.schema([f for f in own if f.name.lower() not in key]))
    return {**found, "key_format": keys}


def _refuse_wrapped(where: str, settings: Mapping[str, Any]) -> None:
    if settings.get("update_format", "raw") != "raw" or settings.get("array"):
        raise ConnectorError(
            f"{where}: with 'envelope' set to 'upsert' a message is a row: expected the update_format 'raw',"
            " and no array"
        )
    if settings.get("mode") == "lines":
        raise ConnectorError(f"{where}: with 'envelope' set to 'upsert' a message is a row, not lines")


def _metadata(config: Section, table: Table) -> dict[str, str]:
    """Column -> what it holds of a message."""
    found: dict[str, str] = {}
    asked = {flag: config.get(flag, bool, False) for flag, _ in METADATA.values()}
    for column in table.columns:
        if column.metadata is None:
            continue
        if column.metadata not in METADATA:
            raise ConnectorError(
                f"{config.path}: the column {column.name} asks for '{column.metadata}'; Kafka has"
                f" {', '.join(METADATA)}"
            )
        flag, types = METADATA[column.metadata]
        if not asked[flag]:
            continue  # it is NULL, as the reference has it
        if column.type not in types:
            raise ConnectorError(
                f"{config.path}.{flag}: the column {column.name} is {column.type.simpleString().upper()};"
                f" expected {' or '.join(t.simpleString().upper() for t in types)}"
            )
        found[column.name] = column.metadata
    return found
