"""`print`: the changes of a view on the console, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from rich import get_console
from rich.markup import escape
from rich.table import Table as RichTable

from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING, Output
from penstock.connectors.output.encode import to_json

if TYPE_CHECKING:
    from penstock.sql import Connector, View

_ROWS = 20


class PrintOutput(Output):
    """Prints each transaction's changes as a table: + for inserted rows, - for deleted ones.

    It prints to Rich's shared console, so that a live display on the same terminal moves out of the way.
    """

    remembers = False
    by_every_replica = True

    def __init__(self, name: str, view: str, max_rows: int = _ROWS) -> None:
        self.name = name
        self._view = view
        self._max_rows = max_rows

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        config = Section.of(f"connector {connector.name}: transport", connector.config["transport"]).section(
            "config"
        )
        config.only(["max_rows"])
        return cls(connector.name, view.name, config.count("max_rows", least=1) or _ROWS)

    def open(self, owner: str, schema: pa.Schema) -> int:
        return NOTHING

    def write(self, transaction: int, changes: pa.Table) -> None:
        get_console().print(changes_table(self._view, transaction, changes, self._max_rows))


def changes_table(view: str, transaction: int, changes: pa.Table, max_rows: int = _ROWS) -> RichTable:
    """The changes of one transaction; long ones are cut, and the caption says by how much."""
    names = [name for name in changes.column_names if name not in ("_change_type", "_weight")]
    table = RichTable(title=f"{escape(view)}, transaction {transaction}", title_justify="left")
    for name in ("", *names):
        table.add_column(escape(name), overflow="fold")
    for row in changes.slice(0, max_rows).to_pylist():
        inserted = row["_change_type"] == "insert"
        weight = "" if row["_weight"] == 1 else str(row["_weight"])
        cells = [cell(row[name]) for name in names]
        table.add_row(("+" if inserted else "-") + weight, *cells, style="green" if inserted else "red")
    if changes.num_rows > max_rows:
        table.caption = f"and {changes.num_rows - max_rows:,} more rows"
    return table


def cell(value: Any) -> str:
    """A value as people read it."""
    return "NULL" if value is None else escape(str(to_json(value)))
