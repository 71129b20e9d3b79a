"""One field to generate: its settings, its type, and where its randomness comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.input.datagen.chance import ALL, Origin, Words, below, wide_below, words, zipf
from penstock.connectors.input.datagen.numbers import Numbers
from penstock.connectors.input.datagen.settings import FieldSettings
from penstock.connectors.misfit import sql_name
from penstock.errors import ConnectorError

Generate = Callable[[Words], pa.Array]
"""Row indices to the values of those rows."""


@dataclass(frozen=True)
class Field:
    """A column, a field of a struct, or the elements of an array or map."""

    settings: FieldSettings
    column: pa.Field
    path: str
    """Its place in the table, which its random streams derive from."""
    origin: Origin

    @property
    def kind(self) -> pa.DataType:
        return self.column.type

    @property
    def type_name(self) -> str:
        return sql_name(self.kind)

    @property
    def counts_up(self) -> bool:
        return self.settings.strategy == "increment"

    def key(self, purpose: str) -> np.uint64:
        return self.origin.stream(f"{self.path}/{purpose}")

    def error(self, setting: str, expected: str, found: Any) -> ConnectorError:
        return ConnectorError(f"{self.settings.path}.{setting}: expected {expected}, found {found!r}")

    def pick(self, limit: int, purpose: str = "value") -> Numbers:
        """Row indices to numbers from 0 to `limit - 1`, by the field's strategy."""
        key, strategy = self.key(purpose), self.settings.strategy
        if strategy == "increment":
            return lambda rows: rows % np.uint64(limit)
        if strategy == "zipf":
            ranks = zipf(limit, self.settings.exponent)
            return lambda rows: ranks(words(key, rows))
        if limit <= ALL:
            return lambda rows: below(words(key, rows), limit)
        more = self.key(purpose + "/more")
        return lambda rows: wide_below(words(key, rows), words(more, rows), limit)

    def bounds(self, parse: Callable[[Any], int]) -> tuple[int, int] | None:
        """`range` as two numbers."""
        if self.settings.range is None:
            return None
        low, high = (parse(bound) for bound in self.settings.range)
        if not low < high:
            raise self.error("range", "[a, b) with a < b", list(self.settings.range))
        return low, high

    def counts(self, default: tuple[int, int]) -> tuple[int, int]:
        """`range` as a length or number of elements."""
        low, high = self.settings.range or default
        if type(low) is not int or type(high) is not int or not 0 <= low < high:
            raise self.error("range", "two integers [a, b) with 0 <= a < b", [low, high])
        return low, high
