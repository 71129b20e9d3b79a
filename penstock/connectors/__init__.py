"""Connectors: where a table's rows come from and where a view's changes go."""

from penstock.connectors.input.arrow import Part, arrow_splits, inline_split, served, stream_split
from penstock.connectors.interface import (
    DELETE,
    ERROR_COLUMN,
    INSERT,
    MAX_BATCH_ROWS,
    NOTHING,
    OP_COLUMN,
    READING,
    BadRecord,
    Input,
    Output,
    Split,
)
from penstock.connectors.output.callback import CallbackOutput
from penstock.connectors.push import parse_pushed
from penstock.connectors.registry import (
    create_input,
    create_output,
    keeps_errors,
    log_order,
    mark_of,
    read_split,
)
from penstock.connectors.rows import to_arrow

__all__ = [
    "DELETE",
    "ERROR_COLUMN",
    "INSERT",
    "MAX_BATCH_ROWS",
    "NOTHING",
    "OP_COLUMN",
    "READING",
    "BadRecord",
    "CallbackOutput",
    "Input",
    "Output",
    "Part",
    "Split",
    "arrow_splits",
    "create_input",
    "create_output",
    "inline_split",
    "keeps_errors",
    "log_order",
    "mark_of",
    "parse_pushed",
    "read_split",
    "served",
    "stream_split",
    "to_arrow",
]
