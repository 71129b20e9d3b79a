"""What a connector gives, on its way into a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connectors import Split
from penstock.journal.record import API


@dataclass(frozen=True)
class Arrival:
    """What a connector gave for a table, and where it stood after that."""

    table: str
    data: pa.Table | Sequence[Split]
    connector: str = API
    position: Any = None

    @property
    def rows(self) -> int:
        if isinstance(self.data, pa.Table):
            rows: int = self.data.num_rows
            return rows
        return sum(split.rows or 0 for split in self.data)


def gathered(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The same, with one arrival for what a connector gave for a table, and one for its rows."""
    grouped: dict[tuple[str, str], list[Arrival]] = {}
    for arrival in arrivals:
        grouped.setdefault((arrival.connector, arrival.table), []).append(arrival)
    found: list[Arrival] = []
    for (connector, table), items in grouped.items():
        tables = [item.data for item in items if isinstance(item.data, pa.Table)]
        splits = [split for item in items if not isinstance(item.data, pa.Table) for split in item.data]
        if tables:
            found.append(Arrival(table, pa.concat_tables(tables), connector))
        if splits:
            found.append(Arrival(table, tuple(splits), connector, items[-1].position))
    return found
