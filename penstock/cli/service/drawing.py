"""Answers of the service as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from penstock.cli.units import age

_CONTROL = {number: f"\\x{number:02x}" for number in (*range(32), 127) if chr(number) not in "\n\t"}
"""Data must not be able to steer the terminal that it is shown on."""


def text(value: Any) -> Text:
    """One value, which is no markup and no control sequence."""
    return Text("" if value is None else str(value).translate(_CONTROL))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Columns whose values are all numbers are aligned to the right."""
    found = [list(row) for row in rows]
    drawn = Table()
    for number, column in enumerate(columns):
        values = [row[number] for row in found if row[number] is not None]
        is_number = bool(values) and all(isinstance(v, int | float) for v in values)
        drawn.add_column(text(column), justify="right" if is_number else "left", overflow="fold")
    for row in found:
        drawn.add_row(*(text(_grouped(value)) for value in row))
    return drawn


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """What is known about one thing, a line each."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(text(name), text(_grouped(value)))
    return drawn


def _grouped(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else value


def since(moment: str | None) -> str:
    """How long ago a time of the service was."""
    return "" if moment is None else age(datetime.fromisoformat(moment))


def first_line(error: Mapping[str, Any] | None) -> str:
    return "" if error is None else str(error["message"]).partition("\n")[0]
