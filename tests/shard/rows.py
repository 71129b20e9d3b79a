"""Rows for tests of shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa

from penstock.shard.shard import Shard
from penstock.shard.stores.place import Place

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
_ALL = pa.schema([*SCHEMA, ("_time", pa.int64()), ("_weight", pa.int64())])


def changes(*rows: tuple[int, str, int, int]) -> pa.Table:
    """Changes from (key, value, time, weight)."""
    return pa.Table.from_pylist([dict(zip(_ALL.names, row, strict=True)) for row in rows], schema=_ALL)


def counted(table: pa.Table) -> Counter[tuple[int, str]]:
    """How often each row is there."""
    found: Counter[tuple[int, str]] = Counter()
    for row in table.to_pylist():
        found[row["key"], row["value"]] += row["_weight"]
    return found


def at_times(table: pa.Table) -> list[tuple[int, str, int, int]]:
    """All changes, in the order of their times."""
    found = [(row["key"], row["value"], row["_time"], row["_weight"]) for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row[2], row[0], row[1]))


def opened(place: Place, **more: float) -> Shard:
    """The shard of most tests, as another process would open it."""
    return Shard.open(place, "s", SCHEMA, **more)


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second whenever somebody looks at it, however slow the machine is."""
    return count(1).__next__


def files_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())
