"""Every connector by the name it has in a program, and every reader by the name it has in a split.

What a program does not use is not imported: the clients of all systems together take half a second, in the
driver and once more in Spark's Python workers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.interface import Input, Output, Reader, Reject, Split, refuse
from penstock.errors import ConnectorError
from penstock.sql import View

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

INPUTS: Mapping[str, str] = {
    "file_input": "input.file.FileInput",
    "url_input": "input.url.UrlInput",
    "s3_input": "input.s3.S3Input",
    "delta_table_input": "input.delta.DeltaInput",
    "kafka_input": "input.kafka.KafkaInput",
    "datagen": "input.datagen.DatagenInput",
    "shard_input": "input.shard.ShardInput",
}

OUTPUTS: Mapping[str, str] = {
    "delta_table_output": "output.delta.DeltaOutput",
    "file_output": "output.file.FileOutput",
    "kafka_output": "output.kafka.KafkaOutput",
    "null": "output.null.NullOutput",
    "postgres_output": "output.postgres.PostgresOutput",
    "print": "output.printing.PrintOutput",
    "shard_output": "output.shard.ShardOutput",
}

READERS: Mapping[str, str] = {
    "arrow": "input.arrow.read_arrow",
    "arrow_stream": "input.arrow.read_stream",
    "arrow_served": "input.arrow.read_served",
    "inline": "input.arrow.read_inline",
    "file": "input.file.read_file",
    "url": "input.url.read_url",
    "s3": "input.s3.read_s3",
    "delta": "input.delta.read_delta",
    "kafka": "input.kafka.read_kafka",
    "datagen": "input.datagen.read_datagen",
    "shard": "input.shard.read_shard",
}


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"penstock.connectors.{module}"), name)


def create_input(connector: Connector, table: Table) -> Input:
    """The input that a connector of a table describes."""
    found: type[Input] = _load(INPUTS[_transport(connector, f"table {table.name}", INPUTS)])
    return found.from_config(connector, table)


def create_output(connector: Connector, view: View) -> Output:
    """The output that a connector of a view describes."""
    found: type[Output] = _load(OUTPUTS[_transport(connector, f"view {view.name}", OUTPUTS)])
    return found.from_config(connector, view)


def keeps_errors(connector: Connector) -> bool:
    """Whether records that cannot be read are kept under their keys."""
    transport = connector.config["transport"]
    return transport["name"] == "kafka_input" and (transport.get("config") or {}).get("envelope") == "upsert"


def mark_of(connector: Connector, relation: Table | View) -> dict[str, Any]:
    """What makes a connector the one that it is: its transport and its format, without what may be changed
    between two runs."""
    transport, formatted = connector.config.get("transport"), connector.config.get("format")
    if isinstance(transport, Mapping) and transport.get("name") in ("shard_input", "shard_output"):
        own = {name: (transport.get("config") or {}).get(name) for name in ("uri", "name")}
        return {"transport": {"name": transport["name"], "config": own}, "format": formatted}
    if not isinstance(transport, Mapping) or transport.get("name") not in ("kafka_input", "kafka_output"):
        return {"transport": transport, "format": formatted}
    from penstock.connectors.kafka import lasting
    from penstock.connectors.schema_registry import without_registry

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
    if split.source != "kafka":
        return None
    from penstock.connectors.input.kafka import place_of

    return place_of(split)


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
    if split.source not in READERS:
        raise ConnectorError(f"no reader '{split.source}'; known: {', '.join(READERS)}")
    reader: Reader = _load(READERS[split.source])
    return reader(split.payload, schema, defaults or {}, reject)


def _transport(connector: Connector, where: str, known: Mapping[str, Any]) -> str:
    path = f"connector {connector.name} of {where}: transport"
    name = Section.of(path, connector.config.get("transport")).required("name", str)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
        raise ConnectorError(f"{path}.name: unknown transport '{name}'; {hint}")
    return name
