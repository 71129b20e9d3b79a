"""The rows of an answer as a table that fits where it is shown."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.service.drawing import facts, text

if TYPE_CHECKING:
    import pyarrow as pa

_NARROWEST_COLUMN = 5
"""With its line; a terminal that has less for each column gets a row as a list."""


def drawn_result(rows: pa.Table) -> RenderableType:
    console = Console()
    if console.is_terminal and rows.num_columns * _NARROWEST_COLUMN > console.width:
        return _listed(rows)
    drawn = Table()
    for field in rows.schema:
        drawn.add_column(
            text(field.name), justify="right" if _is_number(field.type) else "left", overflow="fold"
        )
    columns = [column.to_pylist() for column in rows.columns]
    for values in zip(*columns, strict=True):
        drawn.add_row(*(_cell(value) for value in values))
    return drawn


def _listed(rows: pa.Table) -> RenderableType:
    """A row below the other, with one value in each line."""
    parts: list[RenderableType] = []
    columns = [column.to_pylist() for column in rows.columns]
    for number, values in enumerate(zip(*columns, strict=True), start=1):
        pairs = zip(rows.column_names, (shown(value) for value in values), strict=True)
        parts += [Text(f"-- row {number}", style="dim"), facts(pairs)]
    return Group(*parts)


def _cell(value: Any) -> Text:
    return Text("NULL", style="dim") if value is None else text(shown(value))


def shown(value: Any) -> str:
    """A value as people write it.

    >>> [shown(value) for value in (True, decimal.Decimal("1E+1"), dt.datetime(2024, 5, 1, 9), b"\\x00a")]
    ['true', '10', '2024-05-01 09:00:00', '0061']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=shown)
    return "NULL" if value is None else str(value)


def _is_number(type_: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_))
