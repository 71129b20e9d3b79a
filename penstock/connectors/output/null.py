"""`null`: drops every change, to measure a pipeline without its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING, Output

if TYPE_CHECKING:
    from penstock.sql import Connector, View


class NullOutput(Output):
    """Takes changes and keeps nothing."""

    remembers = False
    by_every_replica = True

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}: transport"
        Section.of(where, connector.config["transport"]).section("config").only([])
        return cls(connector.name)

    def open(self, owner: str, schema: pa.Schema) -> int:
        return NOTHING

    def write(self, transaction: int, changes: pa.Table) -> None:
        return
