"""Transactions that are a function of their number, and what follows from them.

After any crash the pipeline's own number tells which input it has, so that everything it should show, and
every line that its sinks should hold, can be computed from that number alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

Row = dict[str, int]
BIG = 4_200  # rows: enough for a file beside the journal, and for a batch that is merged in the background


class Mode(StrEnum):
    """Who opens transactions."""

    AUTOMATIC = "automatic"  # the engine: one step each
    EXPLICIT = "explicit"  # a client: one step, and three steps, in turn

    @property
    def explicit(self) -> bool:
        return self is Mode.EXPLICIT

    def steps(self, number: int) -> int:
        """How many steps a transaction has."""
        return 3 if self.explicit and number % 2 else 1


def rows_of(number: int, mode: Mode) -> list[tuple[list[Row], list[int]]]:
    """What each step of a transaction inserts, and the keys it deletes."""
    count = BIG if number % 4 == 0 else 6
    first = number * 10_000
    inserts = [{"id": first + i, "g": (first + i) % 7, "n": number + i % 5 + 1} for i in range(count)]
    inserts += [
        {"id": (number - 1) * 10_000, "g": number % 7, "n": 1}
    ]  # an update, unless it was rolled back
    deletes = [(number - 2) * 10_000 + 1]
    if fails(number, mode):
        inserts[0] = {**inserts[0], "n": 0}  # a division by zero in a view
    steps = mode.steps(number)
    share = -(-len(inserts) // steps)
    parts = [inserts[i * share : (i + 1) * share] for i in range(steps)]
    return [(part, deletes if i == steps - 1 else []) for i, part in enumerate(parts)]


def fails(number: int, mode: Mode) -> bool:
    """Whether a transaction cannot be evaluated, and is skipped."""
    return not mode.explicit and number % 6 == 5


def rolled_back(number: int, mode: Mode) -> bool:
    return mode.explicit and number % 3 == 2


def table_after(last: int, mode: Mode) -> dict[int, Row]:
    """The table after a transaction."""
    table: dict[int, Row] = {}
    for number in range(1, last + 1):
        apply(table, number, mode)
    return table


def apply(table: dict[int, Row], number: int, mode: Mode) -> None:
    if fails(number, mode) or rolled_back(number, mode):
        return
    for inserts, deletes in rows_of(number, mode):
        table.update({row["id"]: row for row in inserts})
        for key in deletes:
            table.pop(key, None)


def sums(table: dict[int, Row]) -> list[list[int]]:
    """The view `sums`."""
    groups: dict[int, list[Row]] = {}
    for row in table.values():
        groups.setdefault(row["g"], []).append(row)
    return sorted([g, len(rows), sum(row["n"] for row in rows)] for g, rows in groups.items())


def changes(last: int, mode: Mode) -> dict[int, Counter[tuple[int, ...]]]:
    """The changes of the view `everything`, which is the table, by transaction."""
    found: dict[int, Counter[tuple[int, ...]]] = {}
    before: dict[int, Row] = {}
    for number in range(1, last + 1):
        after = dict(before)
        apply(after, number, mode)
        change: Counter[tuple[int, ...]] = Counter()
        for key in {*before, *after}:
            if before.get(key) != after.get(key):
                if key in before:
                    change[_tuple(before[key])] -= 1
                if key in after:
                    change[_tuple(after[key])] += 1
        if change:
            found[number] = change
        before = after
    return found


def _tuple(row: Row) -> tuple[int, ...]:
    return row["id"], row["g"], row["n"]


def written(lines: Sequence[dict[str, Any]]) -> dict[int, Counter[tuple[int, ...]]]:
    """The same of what a sink holds."""
    found: dict[int, Counter[tuple[int, ...]]] = {}
    for line in lines:
        sign = line["_weight"] if line["_change_type"] == "insert" else -line["_weight"]
        found.setdefault(line["_transaction"], Counter())[_tuple(line)] += sign
    return found


def program(sinks: Path, postgres: str | None) -> str:
    """The program whose sinks are in a directory."""
    appended = [
        {"transport": {"name": "file_output", "config": {"path": str(sinks / "everything.jsonl")}}},
        {
            "name": "appended",
            "transport": {"name": "delta_table_output", "config": {"uri": str(sinks / "appended")}},
        },
    ]
    mirrored: list[dict[str, Any]] = [
        {
            "name": "mirrored",
            "transport": {
                "name": "delta_table_output",
                "config": {"uri": str(sinks / "mirrored"), "mode": "mirror", "key_columns": ["g"]},
            },
        }
    ]
    if postgres is not None:
        config = {"uri": postgres, "table": "sums"}
        mirrored.append({"transport": {"name": "postgres_output", "config": config}})
    return f"""
    CREATE TABLE t (id INT PRIMARY KEY, g INT, n BIGINT);
    CREATE VIEW everything WITH ('connectors' = '{json.dumps(appended)}') AS SELECT id, g, n FROM t;
    CREATE VIEW sums WITH ('connectors' = '{json.dumps(mirrored)}') AS
        SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
    CREATE VIEW shares AS SELECT id, 100 / n AS share FROM t;
    """
