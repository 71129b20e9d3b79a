"""Compares two tables as multisets of rows.

Floats are equal to 1e-9 relative, NaN equals NaN, -0.0 equals 0.0; maps are compared without order.
Everything else must be equal, the names and types of the columns included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

TOLERANCE = 1e-9
SHOWN = 8


@dataclass(frozen=True)
class _Split:
    """A row in two parts: what must be equal exactly, and the floats, in order of appearance."""

    exact: Hashable
    floats: tuple[float, ...]
    row: tuple[Any, ...]


class _Float:
    """Stands where a float was."""


def difference(actual: pa.Table, expected: pa.Table) -> str | None:
    """What differs, for people; None if nothing does."""
    if (schemas := _schema_difference(actual.schema, expected.schema)) is not None:
        return schemas
    missing = _by_exact_part(expected)
    extra: list[_Split] = []
    for exact, rows in _by_exact_part(actual).items():
        unmatched = _match(rows, missing.pop(exact, []))
        extra += unmatched[0]
        if unmatched[1]:
            missing[exact] = unmatched[1]
    lost = [row for rows in missing.values() for row in rows]
    if not extra and not lost:
        return None
    lines = [f"columns: {', '.join(expected.column_names)}"]
    lines += [f"{actual.num_rows} rows, expected {expected.num_rows}"]
    lines += _listing("missing", lost) + _listing("unexpected", extra)
    return "\n".join(lines)


def _listing(title: str, rows: list[_Split]) -> list[str]:
    shown = sorted(repr(row.row) for row in rows)
    more = [f"  ... and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
    return [f"{title} ({len(rows)}):", *(f"  {line}" for line in shown[:SHOWN]), *more] if rows else []


def _schema_difference(actual: pa.Schema, expected: pa.Schema) -> str | None:
    found = [(field.name, _plain(field.type)) for field in actual]
    wanted = [(field.name, _plain(field.type)) for field in expected]
    if found == wanted:
        return None
    return f"columns are {_columns(found)}, expected {_columns(wanted)}"


def _columns(fields: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in fields)


def _plain(kind: pa.DataType) -> str:
    """A type without what does not matter: nullability, field names of lists, 64-bit offsets."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return f"struct<{', '.join(f'{field.name}: {_plain(field.type)}' for field in fields)}>"
    return str(kind).removeprefix("large_")


def _by_exact_part(table: pa.Table) -> dict[Hashable, list[_Split]]:
    groups: dict[Hashable, list[_Split]] = defaultdict(list)
    columns = [column.to_pylist() for column in table.columns]
    types = table.schema.types
    for row in zip(*columns, strict=True) if columns else ((),) * table.num_rows:
        floats: list[float] = []
        exact = tuple(_exact(value, kind, floats) for value, kind in zip(row, types, strict=True))
        groups[exact].append(_Split(exact, tuple(floats), row))
    return groups


def _exact(value: Any, kind: pa.DataType, floats: list[float]) -> Hashable:
    """The value with its floats taken out into `floats`."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        floats.append(value)
        return _Float
    if pa.types.is_map(kind):
        pairs = sorted(value, key=repr)
        return tuple(
            (_exact(key, kind.key_type, floats), _exact(item, kind.item_type, floats)) for key, item in pairs
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return tuple(_exact(item, kind.value_type, floats) for item in value)
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return tuple(_exact(value[field.name], field.type, floats) for field in fields)
    assert isinstance(value, Hashable)
    return value


def _match(actual: list[_Split], expected: list[_Split]) -> tuple[list[_Split], list[_Split]]:
    """The rows of each side that have no partner with equal floats on the other."""
    left, right = _sorted(actual), _sorted(expected)
    if len(left) == len(right) and all(_close(a, b) for a, b in zip(left, right, strict=True)):
        return [], []
    unmatched = []
    for row in left:
        partner = next((index for index, other in enumerate(right) if _close(row, other)), None)
        if partner is None:
            unmatched.append(row)
        else:
            del right[partner]
    return unmatched, right


def _sorted(rows: list[_Split]) -> list[_Split]:
    return sorted(rows, key=lambda row: tuple(_order(row.floats)))


def _order(floats: tuple[float, ...]) -> Iterator[tuple[bool, float]]:
    for value in floats:
        yield (True, 0.0) if math.isnan(value) else (False, value)


def _close(left: _Split, right: _Split) -> bool:
    return all(
        (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(left.floats, right.floats, strict=True)
    )
