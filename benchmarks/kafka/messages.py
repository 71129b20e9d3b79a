"""The messages, and what the view must then hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

KINDS = 20
"""Few, so that single messages too change groups that are there already."""
PARTITIONS = 4

Row: TypeAlias = tuple[int, int, int]
"""Of the view: kind, count, sum of the amounts."""


def value(number: int) -> bytes:
    return b'{"id": %d, "kind": %d, "amount": %d}' % (number, number % KINDS, _amount(number))


def rows(numbers: Iterable[int]) -> list[Row]:
    """The view over messages, ordered by kind."""
    found: dict[int, Row] = {}
    for number in numbers:
        add(found, number)
    return sorted(found.values())


def add(view: dict[int, Row], number: int) -> Row:
    """Count one more message; returns the row of its kind."""
    kind = number % KINDS
    _, count, total = view.get(kind, (kind, 0, 0))
    view[kind] = kind, count + 1, total + _amount(number)
    return view[kind]


def row(content: Mapping[str, int]) -> Row:
    return content["kind"], content["n"], content["total"]


def _amount(number: int) -> int:
    return number % 1009
