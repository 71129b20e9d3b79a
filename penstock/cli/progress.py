"""How a running pipeline is shown: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

_WINDOW_SECONDS = 5.0
"""Rates are over this long."""

_LINE_SECONDS = 1.0
"""Plain lines come at most this often."""


@dataclass(frozen=True)
class Figures:
    """One reading of a pipeline's statistics."""

    stats: Mapping[str, Any]

    @property
    def state(self) -> str:
        return str(self.stats["state"])

    @property
    def transactions(self) -> int:
        return int(self.stats["transactions"])

    @property
    def tables(self) -> Mapping[str, Mapping[str, Any]]:
        tables: Mapping[str, Mapping[str, Any]] = self.stats["tables"]
        return tables

    @property
    def views(self) -> Mapping[str, Mapping[str, Any]]:
        views: Mapping[str, Mapping[str, Any]] = self.stats["views"]
        return views

    @property
    def rows_in(self) -> int:
        return sum(int(table["rows_in"]) for table in self.tables.values())

    def latency(self, name: str) -> str:
        value = self.stats["latency_ms"].get(name)
        return "-" if value is None else f"{value:,.0f} ms"


class Rates:
    """Transactions and rows per second over the last few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int, dict[str, int]]] = deque()

    def add(self, figures: Figures) -> None:
        now = self._clock()
        rows = {name: int(table["rows_in"]) for name, table in figures.tables.items()}
        self._seen.append((now, figures.transactions, rows))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def transactions(self) -> float:
        return self._per_second(self._seen[0][1], self._seen[-1][1]) if self._seen else 0.0

    def rows(self, table: str) -> float:
        if not self._seen:
            return 0.0
        return self._per_second(self._seen[0][2].get(table, 0), self._seen[-1][2].get(table, 0))

    def _per_second(self, before: int, after: int) -> float:
        seconds = self._seen[-1][0] - self._seen[0][0]
        return (after - before) / seconds if seconds > 0 else 0.0


class Display(ABC):
    """Shows one reading after the other."""

    def __init__(self) -> None:
        self._rates = Rates()

    def show(self, stats: Mapping[str, Any]) -> None:
        figures = Figures(stats)
        self._rates.add(figures)
        self._draw(figures)

    @abstractmethod
    def _draw(self, figures: Figures) -> None: ...


class LiveDisplay(Display):
    """A table that changes in place."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    def _draw(self, figures: Figures) -> None:
        self._live.update(live_table(figures, self._rates))


class PlainDisplay(Display):
    """A line now and then, when something happened since the last one."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._console = console
        self._clock = clock
        self._written = -_LINE_SECONDS
        self._transactions = 0

    def _draw(self, figures: Figures) -> None:
        now = self._clock()
        if figures.transactions == self._transactions or now - self._written < _LINE_SECONDS:
            return
        self._written, self._transactions = now, figures.transactions
        self._console.print(plain_line(figures, self._rates), highlight=False, soft_wrap=True)


@contextmanager
def display_for(console: Console) -> Iterator[Display]:
    """What suits the console; a live table is left standing when it ends."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8) as live:
            yield LiveDisplay(live)
    else:
        yield PlainDisplay(console)


def live_table(figures: Figures, rates: Rates) -> RenderableType:
    """Inputs, views, and one line about transactions."""
    inputs = Table(title="inputs", title_justify="left", expand=True)
    for heading in ("table", "rows in", "rows/s", "rows", "errors"):
        inputs.add_column(heading, justify="left" if heading == "table" else "right")
    for name, table in figures.tables.items():
        errors = int(table["errors"])
        inputs.add_row(
            Text(name),
            f"{table['rows_in']:,}",
            f"{rates.rows(name):,.0f}",
            "-" if table["rows"] is None else f"{table['rows']:,}",
            Text(f"{errors:,}", "bold red" if errors else ""),
        )
    views = Table(title="views", title_justify="left", expand=True)
    for heading in ("view", "rows", "changes"):
        views.add_column(heading, justify="left" if heading == "view" else "right")
    for name, view in figures.views.items():
        views.add_row(Text(name), f"{view['rows']:,}", f"{view['changes']:,}")
    return Group(inputs, views, Text(_pulse(figures, rates)))


def _pulse(figures: Figures, rates: Rates) -> str:
    return (
        f"{figures.state} · {_counted(figures.transactions, 'transaction')} · {rates.transactions:,.1f}/s · "
        f"latency {figures.latency('last')} last, {figures.latency('median')} median, "
        f"{figures.latency('p95')} p95"
    )


def plain_line(figures: Figures, rates: Rates) -> str:
    """The same in one line."""
    rows_in = ", ".join(f"{name} {table['rows_in']:,}" for name, table in figures.tables.items())
    rows = ", ".join(f"{name} {view['rows']:,}" for name, view in figures.views.items())
    return f"{_pulse(figures, rates)} · rows in: {rows_in or 'none'} · rows of views: {rows or 'none'}"


def summary(figures: Figures) -> str:
    """What a whole run came to."""
    errors = sum(int(table["errors"]) for table in figures.tables.values())
    wrong = f", {_counted(errors, 'error')}" if errors else ""
    return f"{_counted(figures.transactions, 'transaction')}, {_counted(figures.rows_in, 'row')} in{wrong}."


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
