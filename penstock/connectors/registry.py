"""Every connector by the name it has in a program, and every reader by the name it has in a split."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.input import arrow, datagen, file
from penstock.connectors.interface import Input, Output, Reader, Split
from penstock.connectors.output.file import FileOutput
from penstock.connectors.output.printing import PrintOutput
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table, View

INPUTS: Mapping[str, type[Input]] = {"file_input": file.FileInput, "datagen": datagen.DatagenInput}

OUTPUTS: Mapping[str, type[Output]] = {"file_output": FileOutput, "print": PrintOutput}

READERS: Mapping[str, Reader] = {
    arrow.SOURCE: arrow.read_arrow,
    file.SOURCE: file.read_file,
    datagen.SOURCE: datagen.read_datagen,
}


def create_input(connector: Connector, table: Table) -> Input:
    """The input that a connector of a table describes."""
    return INPUTS[_transport(connector, f"table {table.name}", INPUTS)].from_config(connector, table)


def create_output(connector: Connector, view: View) -> Output:
    """The output that a connector of a view describes."""
    return OUTPUTS[_transport(connector, f"view {view.name}", OUTPUTS)].from_config(connector, view)


def read_split(
    split: Split, schema: pa.Schema, defaults: Mapping[str, Any] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split: the columns of `schema` in its order and `_op`, at most 65,536 rows a batch.

    `defaults` holds the values of columns that the input does not have. Runs in Spark's tasks; the same
    split always gives the same rows.
    """
    reader = READERS.get(split.source)
    if reader is None:
        raise ConnectorError(f"no reader '{split.source}'; known: {', '.join(READERS)}")
    return reader(split.payload, schema, defaults or {})


def _transport(connector: Connector, where: str, known: Mapping[str, Any]) -> str:
    path = f"connector {connector.name} of {where}: transport"
    name = Section.of(path, connector.config.get("transport")).required("name", str)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
        raise ConnectorError(f"{path}.name: unknown transport '{name}'; {hint}")
    return name
