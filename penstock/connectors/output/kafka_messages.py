"""The changes of a transaction as Kafka messages: what every format of `kafka_output` has to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.connectors.config import Section
from penstock.connectors.misfit import sql_name
from penstock.errors import ConnectorError

CHUNK_ROWS = 16_384
"""Rows are encoded in pieces, so that memory holds the messages of one piece and not of a transaction."""

INSERT, DELETE = "insert", "delete"

Message: TypeAlias = tuple[bytes | None, bytes | None, str | None]
"""Its key, its value, and the value of the header `op` if the format needs one."""


class Encoder(ABC):
    """Makes messages of rows. With `key` columns, which tell rows of the view apart, they have keys."""

    op_header = False
    """Whether messages have the header `op`."""

    def __init__(self, name: str, key: Sequence[str] = ()) -> None:
        self.name = name
        self.key = list(key)
        self.columns: list[str] = []

    def open(self, schema: pa.Schema) -> None:
        """Get ready for rows with these columns."""
        self.columns = schema.names
        self.key = [self._key_column(schema, name) for name in self.key]

    @abstractmethod
    def messages(self, changes: pa.Table, where: str) -> Iterator[Message]:
        """What the changes of one transaction come to."""

    def _key_column(self, schema: pa.Schema, name: str) -> str:
        found: list[str] = [column for column in schema.names if column.lower() == name.lower()]
        if not found:
            raise ConnectorError(
                f"connector {self.name}: there is no key column '{name}'; the view has"
                f" {', '.join(schema.names)}"
            )
        kind = schema.field(found[0]).type
        if pt.is_nested(kind) or pt.is_floating(kind):
            # 0.0 is equal to -0.0 and NaN to nothing, and neither is true of their text in a key.
            raise ConnectorError(
                f"connector {self.name}: the key column '{found[0]}' has the type {sql_name(kind)}, whose"
                " values cannot be told apart by their text; choose others"
            )
        return found[0]


def key_names(config: Section) -> list[str]:
    """The field `unique_keys`, or `key_fields` as the reference calls it."""
    if config.values.get("unique_keys") and config.values.get("key_fields"):
        raise ConnectorError(f"{config.path}.key_fields: the same as 'unique_keys'; give one of them")
    field = "unique_keys" if config.values.get("unique_keys") is not None else "key_fields"
    names = config.get(field, list, [])
    if not all(isinstance(name, str) for name in names) or len({n.lower() for n in names}) < len(names):
        raise ConnectorError(
            f"{config.path}.{field}: expected a list of different column names, found {names!r}"
        )
    return names


class Rows(NamedTuple):
    """Rows of one kind of change."""

    kind: str
    table: pa.Table


def by_kind(changes: pa.Table) -> list[Rows]:
    """What is deleted, then what is inserted: who applies changes in their order never has both rows."""
    kinds = changes.column("_change_type")
    return [Rows(kind, changes.filter(pc.equal(kinds, kind))) for kind in (DELETE, INSERT)]


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, CHUNK_ROWS):
        yield rows.slice(start, CHUNK_ROWS)


def weights(rows: pa.Table) -> list[int]:
    """How many copies there are of each row."""
    found: list[int] = rows.column("_weight").to_pylist()
    return found
