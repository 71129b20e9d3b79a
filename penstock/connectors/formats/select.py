"""Which format a connector reads: the one it names, or the one that follows from the ending of its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from penstock.connectors.config import Section
from penstock.connectors.formats import avro, csv, json, parquet
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector

_SETTINGS: Mapping[str, Callable[[Section], dict[str, Any]]] = {
    csv.NAME: csv.csv_settings,
    json.NAME: json.json_settings,
    parquet.NAME: parquet.parquet_settings,
    avro.NAME: avro.avro_settings,
}
_SUFFIXES = {
    ".csv": csv.NAME,
    ".json": json.NAME,
    ".jsonl": json.NAME,
    ".ndjson": json.NAME,
    ".parquet": parquet.NAME,
    ".avro": avro.NAME,
}


def format_settings(connector: Connector, path: str) -> dict[str, Any]:
    """The checked settings of the connector's format."""
    where = f"connector {connector.name}"
    formatted = connector.config.get("format")
    if formatted is None:
        name = _SUFFIXES.get(PurePosixPath(path).suffix.lower())
        if name is None:
            raise ConnectorError(
                f"{where}: the field 'format' is missing, and {path!r} does not end in a known format"
            )
        return _SETTINGS[name](Section(f"{where}: format.config", {}))
    section = Section.of(f"{where}: format", formatted)
    name = section.choice("name", list(_SETTINGS), "")
    return _SETTINGS[name](section.section("config"))
