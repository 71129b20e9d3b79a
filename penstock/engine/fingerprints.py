"""What each relation is, as a short text: the same for two programs in which it would hold the same rows.

A plan names what it reads by name only. So a view's fingerprint holds those of the relations that it reads,
and a view changes when a table or view anywhere below it does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql.types import StructField

from penstock.engine.relations import Relation, TableRelation, ViewRelation
from penstock.plan.compiler import fingerprint

_DIGITS = 16


class Kind(StrEnum):
    """What a relation can be."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True)
class Identity:
    """A relation for comparing: what the user calls it, its kind, and its fingerprint."""

    name: str
    kind: Kind
    fingerprint: str


def identities(relations: Mapping[str, Relation]) -> dict[str, Identity]:
    """The identity of every relation, by lower-case name; relations come after what they read."""
    found: dict[str, Identity] = {}
    for name, relation in relations.items():
        if isinstance(relation, TableRelation):
            found[name] = Identity(relation.name, Kind.TABLE, _digest(*_table(relation)))
        else:
            below = [f"{read} {found[read].fingerprint}" for read in sorted(set(relation.reads))]
            found[name] = Identity(relation.name, Kind.VIEW, _digest(*_view(relation), *below))
    return found


def whole(identities: Mapping[str, Identity]) -> str:
    """Of all relations together."""
    return _digest(*(f"{name} {one.fingerprint}" for name, one in sorted(identities.items())))


def _table(table: TableRelation) -> list[str]:
    """Defaults are not here: they are in the rows already."""
    columns = [(name.lower(), *rest) for name, *rest in _columns(table.schema)]
    return ["table", json.dumps([columns, table.key, table.append_only])]


def _view(view: ViewRelation) -> list[str]:
    plan = ["query", view.query] if view.node is None else ["plan", fingerprint(view.node)]
    return ["view", json.dumps(_columns(view.schema)), *plan]


def _columns(schema: Sequence[StructField]) -> list[tuple[str, str, bool]]:
    return [(column.name, column.dataType.json(), column.nullable) for column in schema]


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:_DIGITS]
