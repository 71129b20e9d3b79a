"""What the journal says: one record for each event that must survive a crash."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from penstock.connectors import Split
from penstock.errors import StorageError


class Kind(StrEnum):
    """What a record tells."""

    BEGIN = "begin"  # a client opened a transaction
    STEP = "step"  # input that belongs to a transaction
    COMMIT = "commit"
    ROLL_BACK = "roll-back"
    SKIP = "skip"
    CONNECTOR = "connector"  # an input was paused or resumed
    JOIN = "join"  # an output is given the rows of its view, and from then on every change


API = "api"
"""The connector that rows are said to come from which were given to `insert` and `delete`."""


@dataclass(frozen=True)
class Rows:
    """Rows that cannot be read again from where they came: inside the record, or in a file beside it."""

    count: int
    offset: int = 0  # in the record's own bytes
    size: int = 0
    file: str | None = None
    checksum: int = 0


@dataclass(frozen=True)
class Portion:
    """What one connector added to a table in one step, and where the connector stood after it."""

    connector: str
    table: str
    splits: tuple[Split, ...] = ()
    rows: Rows | None = None
    position: Any = None


@dataclass(frozen=True)
class Digest:
    """How many rows a connector gave to a transaction, and the sum of their hashes, in whatever order."""

    rows: int = 0
    hash: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.hash + other.hash) % (1 << 64))

    def __str__(self) -> str:
        return f"{self.rows} rows with hash {self.hash:016x}"


@dataclass(frozen=True)
class Record:
    """One event. Which of the fields matter depends on its kind."""

    kind: Kind
    transaction: int
    at: datetime
    portions: tuple[Portion, ...] = ()
    digests: Mapping[str, Digest] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)


_SIZE = struct.Struct("<I")


def encode(record: Record, data: bytes = b"") -> bytes:
    """A record and the rows inside it as bytes."""
    content = {
        "kind": record.kind,
        "transaction": record.transaction,
        "at": record.at.isoformat(),
        "portions": [_plain(asdict(portion)) for portion in record.portions],
        "digests": {name: [d.rows, f"{d.hash:016x}"] for name, d in record.digests.items()},
        "note": dict(record.note),
    }
    text = json.dumps({key: value for key, value in content.items() if value not in ([], {})}).encode()
    return _SIZE.pack(len(text)) + text + data


def decode(payload: bytes, where: str) -> tuple[Record, int]:
    """The record, and where in the payload the rows inside it begin."""
    try:
        (size,) = _SIZE.unpack_from(payload)
        content = json.loads(payload[_SIZE.size : _SIZE.size + size])
        return Record(
            Kind(content["kind"]),
            content["transaction"],
            datetime.fromisoformat(content["at"]),
            tuple(_portion(portion) for portion in content.get("portions", ())),
            {
                name: Digest(rows, int(hash_, 16))
                for name, (rows, hash_) in content.get("digests", {}).items()
            },
            content.get("note", {}),
        ), _SIZE.size + size
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        raise StorageError(
            f"{where} cannot be understood: {error}. A newer Penstock may have written it; use that one."
        ) from error


def _portion(content: dict[str, Any]) -> Portion:
    rows = content.pop("rows", None)
    splits = tuple(Split(**split) for split in content.pop("splits", ()))
    return Portion(**content, splits=splits, rows=None if rows is None else Rows(**rows))


def _plain(portion: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in portion.items() if value not in (None, ())}
