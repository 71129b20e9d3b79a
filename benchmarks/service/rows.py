"""What clients push: rows of one table, and what the view must then hold."""

from __future__ import annotations

from collections.abc import Iterator

PROGRAM = """
CREATE TABLE events (id BIGINT PRIMARY KEY, kind INT, amount BIGINT);
CREATE VIEW totals AS SELECT kind, count(*) AS n, sum(amount) AS amount FROM events GROUP BY kind;
"""
KINDS = 100


def line(id_: int) -> str:
    return f'{{"id": {id_}, "kind": {id_ % KINDS}, "amount": {id_ % 1009}}}'


def bodies(first: int, count: int, size: int) -> Iterator[bytes]:
    """JSON lines, `size` of them in a body."""
    for start in range(first, first + count, size):
        end = min(start + size, first + count)
        yield "\n".join(map(line, range(start, end))).encode()


def totals(count: int) -> dict[int, tuple[int, int]]:
    """The view over the first `count` rows."""
    found = dict.fromkeys(range(min(KINDS, count)), (0, 0))
    for id_ in range(count):
        n, amount = found[id_ % KINDS]
        found[id_ % KINDS] = n + 1, amount + id_ % 1009
    return found
