"""Connectors: where a table's rows come from and where a view's changes go."""

from penstock.connectors.feeder import Feeder
from penstock.connectors.input.arrow import arrow_splits
from penstock.connectors.interface import DELETE, INSERT, OP_COLUMN, Input, Output, Split
from penstock.connectors.registry import create_input, create_output, read_split
from penstock.connectors.rows import to_arrow

__all__ = [
    "DELETE",
    "INSERT",
    "OP_COLUMN",
    "Feeder",
    "Input",
    "Output",
    "Split",
    "arrow_splits",
    "create_input",
    "create_output",
    "read_split",
    "to_arrow",
]
