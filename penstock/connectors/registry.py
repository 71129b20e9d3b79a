"""Every connector by the name it has in a program, and every reader by the name it has in a split."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.input import arrow, datagen, delta, file, kafka, s3, shard, url
from penstock.connectors.interface import Input, Output, Reader, Reject, Split, refuse
from penstock.connectors.kafka import lasting
from penstock.connectors.output.delta import DeltaOutput
from penstock.connectors.output.file import FileOutput
from penstock.connectors.output.kafka import KafkaOutput
from penstock.connectors.output.null import NullOutput
from penstock.connectors.output.postgres import PostgresOutput
from penstock.connectors.output.printing import PrintOutput
from penstock.connectors.output.shard import ShardOutput
from penstock.connectors.schema_registry import without_registry
from penstock.errors import ConnectorError
from penstock.sql import View

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

INPUTS: Mapping[str, type[Input]] = {
    "file_input": file.FileInput,
    "url_input": url.UrlInput,
    "s3_input": s3.S3Input,
    "delta_table_input": delta.DeltaInput,
    "kafka_input": kafka.KafkaInput,
    "datagen": datagen.DatagenInput,
    "shard_input": shard.ShardInput,
}

OUTPUTS: Mapping[str, type[Output]] = {
    "delta_table_output": DeltaOutput,
    "file_output": FileOutput,
    "kafka_output": KafkaOutput,
    "null": NullOutput,
    "postgres_output": PostgresOutput,
    "print": PrintOutput,
    "shard_output": ShardOutput,
}

READERS: Mapping[str, Reader] = {
    arrow.SOURCE: arrow.read_arrow,
    arrow.STREAM_SOURCE: arrow.read_stream,
    arrow.INLINE_SOURCE: arrow.read_inline,
    file.SOURCE: file.read_file,
    url.SOURCE: url.read_url,
    s3.SOURCE: s3.read_s3,
    delta.SOURCE: delta.read_delta,
    kafka.SOURCE: kafka.read_kafka,
    datagen.SOURCE: datagen.read_datagen,
    shard.SOURCE: shard.read_shard,
}


def create_input(connector: Connector, table: Table) -> Input:
    """The input that a connector of a table describes."""
    return INPUTS[_transport(connector, f"table {table.name}", INPUTS)].from_config(connector, table)


def create_output(connector: Connector, view: View) -> Output:
    """The output that a connector of a view describes."""
    return OUTPUTS[_transport(connector, f"view {view.name}", OUTPUTS)].from_config(connector, view)


def mark_of(connector: Connector, relation: Table | View) -> dict[str, Any]:
    """What makes a connector the one that it is: its transport and its format, without what may be changed
    between two runs."""
    transport, formatted = connector.config.get("transport"), connector.config.get("format")
    if isinstance(transport, Mapping) and transport.get("name") in ("shard_input", "shard_output"):
        own = {name: (transport.get("config") or {}).get(name) for name in ("uri", "name")}
        return {"transport": {"name": transport["name"], "config": own}, "format": formatted}
    if not isinstance(transport, Mapping) or transport.get("name") not in ("kafka_input", "kafka_output"):
        return {"transport": transport, "format": formatted}
    config = lasting(transport.get("config") or {})
    if "key_format" in config:
        config["key_format"] = without_registry(config["key_format"])
    found = {"transport": {**transport, "config": config}, "format": without_registry(formatted)}
    index = connector.config.get("index")
    if isinstance(index, str) and isinstance(relation, View):
        found["key"] = list(relation.indexes.get(index.lower(), ()))
    return found


def log_order(split: Split) -> tuple[str, int, int] | None:
    """Where a split stands in the log that it is a range of; None if it is of none."""
    return kafka.place_of(split) if split.source == kafka.SOURCE else None


def read_split(
    split: Split,
    schema: pa.Schema,
    defaults: Mapping[str, Any] | None = None,
    reject: Reject = refuse,
) -> Iterator[pa.RecordBatch]:
    """The rows of a split: the columns of `schema` in its order and `_op`, at most 65,536 rows a batch.

    `defaults` holds the values of columns that the input does not have. Runs in Spark's tasks; the same
    split always gives the same rows, and rejects the same records.
    """
    reader = READERS.get(split.source)
    if reader is None:
        raise ConnectorError(f"no reader '{split.source}'; known: {', '.join(READERS)}")
    return reader(split.payload, schema, defaults or {}, reject)


def _transport(connector: Connector, where: str, known: Mapping[str, Any]) -> str:
    path = f"connector {connector.name} of {where}: transport"
    name = Section.of(path, connector.config.get("transport")).required("name", str)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
        raise ConnectorError(f"{path}.name: unknown transport '{name}'; {hint}")
    return name
