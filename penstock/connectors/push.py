"""Text or bytes that a program holds in its hands, read as a file of a format would be."""

from __future__ import annotations

import codecs
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.formats import json
from penstock.connectors.formats.record import Rejections, Target
from penstock.connectors.formats.select import format_settings
from penstock.connectors.input.file import FileInput
from penstock.connectors.interface import OP_FIELD, BadRecord
from penstock.connectors.registry import read_split
from penstock.errors import BadRowError
from penstock.sql import Connector

if TYPE_CHECKING:
    from penstock.sql import Table

_ALL = 1 << 62
_NAME = "pushed"


def parse_pushed(
    data: bytes,
    format: Mapping[str, Any],
    table: Table,
    schema: pa.Schema,
    defaults: Mapping[str, Any],
) -> pa.Table:
    """The rows with `_op`; `BadRowError` names the first record that is wrong, and then there are none."""
    bad: list[BadRecord] = []
    if format["name"] == json.NAME:
        settings = format_settings(Connector(_NAME, {"format": format}), "")
        target = Target(schema, table.primary_key, defaults)
        text = data.removeprefix(codecs.BOM_UTF8)
        batches = list(json.parse_json(text, settings, target, Rejections(_NAME, "line", 0, bad.append)))
    else:
        batches = _read_file(data, format, table, schema, defaults, bad)
    if bad:
        place = bad[0].position.partition(", ")[2]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise BadRowError(f"{place} of what was pushed to {table.name}: {bad[0].reason}{more}")
    return pa.Table.from_batches(batches, schema.append(OP_FIELD))


def _read_file(
    data: bytes,
    format: Mapping[str, Any],
    table: Table,
    schema: pa.Schema,
    defaults: Mapping[str, Any],
    bad: list[BadRecord],
) -> list[pa.RecordBatch]:
    """By way of a file: what a format does in one, it does here."""
    with tempfile.NamedTemporaryFile(prefix="penstock-pushed-") as file:
        file.write(data)
        file.flush()
        transport = {"name": "file_input", "config": {"path": file.name}}
        source = FileInput.from_config(Connector(_NAME, {"transport": transport, "format": format}), table)
        batches = []
        while splits := source.poll(_ALL):
            for split in splits:
                batches += list(read_split(split, schema, defaults, bad.append))
        return batches
