"""What the changes of one transaction come to, key by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.config import Section
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, View


@dataclass(frozen=True)
class NetChange:
    """Rows to put in place, and rows whose key is gone; no key is in both or twice in one."""

    upserts: pa.Table
    deletes: pa.Table
    replaces: list[bool]
    """For each of the upserts, whether a row with its key was there before."""

    @property
    def updates(self) -> int:
        return sum(self.replaces)

    @property
    def inserts(self) -> int:
        return len(self.replaces) - self.updates


def key_columns(config: Section) -> list[str]:
    """The field `key_columns`: names of columns, none twice."""
    names = config.get("key_columns", list, [])
    if not all(isinstance(name, str) for name in names) or len({n.lower() for n in names}) < len(names):
        raise ConnectorError(
            f"{config.path}.key_columns: expected a list of different column names, found {names!r}"
        )
    return names


def index_columns(connector: Connector, view: View) -> Sequence[str]:
    """The columns of the index that the connector's field `index` names; none if it names none."""
    name = connector.config.get("index")
    if name is None:
        return ()
    found = view.indexes.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(view.indexes) or "none"
        raise ConnectorError(
            f"connector {connector.name}: index: the view {view.name} has no index {name!r}; it has: {known}."
            f" Write CREATE INDEX {name} ON {view.name} (columns)"
        )
    return found


def net_change(changes: pa.Table, key: Sequence[str], where: str) -> NetChange:
    """A row that is deleted and one with the same key that is inserted are one update.

    Every key must belong to one row, or it could not stand for it: `ConnectorError`.
    """
    inserted = changes.filter(pc.equal(changes.column("_change_type"), "insert"))
    deleted = changes.filter(pc.equal(changes.column("_change_type"), "delete"))
    new, old = _keys(inserted, key, where), _keys(deleted, key, where)
    gone = pa.array([k not in new for k in old], pa.bool_())
    return NetChange(inserted, deleted.filter(gone), [k in old for k in new])


def _keys(rows: pa.Table, key: Sequence[str], where: str) -> dict[tuple[Any, ...], None]:
    columns = [rows.column(name).to_pylist() for name in key]
    seen: dict[tuple[Any, ...], None] = {}
    for values, weight in zip(zip(*columns, strict=True), rows.column("_weight").to_pylist(), strict=True):
        if values in seen or weight != 1:
            shown = ", ".join(f"{name} = {value!r}" for name, value in zip(key, values, strict=True))
            raise ConnectorError(
                f"{where}: the view has several rows with {shown}; choose key columns that tell rows apart"
            )
        seen[values] = None
    return seen
