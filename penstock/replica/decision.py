"""What makes up one transaction, as the replicas of a group agreed on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.connectors import Split
from penstock.errors import StorageError
from penstock.journal.arrival import Arrival
from penstock.shard.state import Part
from penstock.storage.files import Content


@dataclass(frozen=True)
class Decision:
    """The input of a transaction and the time that it has, whoever runs it."""

    number: int
    at: datetime
    arrivals: Sequence[Arrival]
    mine: bool = False
    """Whether this replica decided it."""
    announces: bool = False
    """Whether it is the first of the generation that this replica is of."""

    @property
    def positions(self) -> dict[str, Any]:
        """Where the connectors stand after it."""
        return {a.connector: a.position for a in self.arrivals if a.position is not None}


def encode(at: datetime, token: str, arrivals: Sequence[Arrival], parts: Mapping[int, Part]) -> str:
    """A decision as text; `parts` are the objects with the rows of those arrivals that are rows."""
    portions = []
    for index, arrival in enumerate(arrivals):
        portion: dict[str, Any] = {"connector": arrival.connector, "table": arrival.table}
        if index in parts:
            part = parts[index]
            portion["part"] = [part.key, part.content.bytes, part.content.checksum, part.rows]
        else:
            portion["splits"] = [[split.source, dict(split.payload), split.rows] for split in arrival.data]
        if arrival.position is not None:
            portion["position"] = arrival.position
        portions.append(portion)
    return json.dumps({"at": at.isoformat(), "by": token, "portions": portions})


@dataclass(frozen=True)
class Encoded:
    """A decision whose rows have not been fetched."""

    at: datetime
    token: str
    portions: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, text: str, where: str) -> Encoded:
        try:
            found = json.loads(text)
            return cls(datetime.fromisoformat(found["at"]), found["by"], found["portions"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{where} cannot be understood: {error}. A newer Penstock may have written it; use that one."
            ) from error

    @property
    def positions(self) -> dict[str, Any]:
        """Where the connectors stand after it."""
        return {p["connector"]: p["position"] for p in self.portions if p.get("position") is not None}

    @staticmethod
    def part(portion: Mapping[str, Any]) -> Part | None:
        """The object that has the rows of a portion."""
        if "part" not in portion:
            return None
        key, size, checksum, rows = portion["part"]
        return Part(key, Content(size, checksum), rows)

    @staticmethod
    def arrival(portion: Mapping[str, Any], rows: pa.Table | None) -> Arrival:
        data = rows if rows is not None else tuple(Split(*split) for split in portion["splits"])
        return Arrival(portion["table"], data, portion["connector"], portion.get("position"))
