"""Rows in memory, as Arrow has them, each found by the hash that it is known by.

Which rows are equal is so decided as the shard decides it, whatever their types: NaN is NaN, and -0.0 is 0.0.
No value becomes a Python object, which would not hold every timestamp that Arrow has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from penstock.shard.rows import row_hashes

_TABLE = 64
"""A table takes about as much memory as so many small rows."""

_SLACK = 4096
"""Rows that are not worth tidying up for."""


def hashes_of(table: pa.Table, columns: Sequence[str]) -> list[bytes]:
    """What the rows are known by as far as some columns go, in 16 bytes each.

    >>> one, other, again = hashes_of(pa.table({"a": [1, 2, 1], "b": [1, 2, 3]}), ["a"])
    >>> one == again != other
    True
    """
    data = np.stack(row_hashes(table, columns), axis=1).tobytes()
    return [data[at : at + 16] for at in range(0, len(data), 16)]


class KnownRows:
    """Each row is there once, however often it was added."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._forget()

    def _forget(self) -> None:
        self._tables: list[pa.Table] = []
        self._places: dict[bytes, tuple[int, int]] = {}  # the number of a table, and of a row in it
        self._size = 0

    def add(self, table: pa.Table) -> list[bytes]:
        """Have these rows, too; returns their hashes."""
        hashes = hashes_of(table, self._schema.names)
        new: list[int] = []
        for index, hash_ in enumerate(hashes):
            if hash_ not in self._places:
                self._places[hash_] = (len(self._tables), len(new))
                new.append(index)
        if new:
            self._tables.append(table.select(self._schema.names).take(pa.array(new)))
            self._size += len(new) + _TABLE
        return hashes

    def take(self, hashes: Iterable[bytes]) -> pa.Table:
        """The rows with these hashes, in any order."""
        wanted: dict[int, list[int]] = defaultdict(list)
        for hash_ in hashes:
            number, index = self._places[hash_]
            wanted[number].append(index)
        found = [self._tables[number].take(pa.array(indices)) for number, indices in wanted.items()]
        return pa.concat_tables([self._schema.empty_table(), *found])

    def is_mostly_waste(self, needed: int) -> bool:
        """Whether it holds far more than so many rows."""
        return self._size > 2 * needed + _SLACK

    def keep(self, hashes: Iterable[bytes]) -> None:
        """Have no other rows than these any more."""
        table = self.take(dict.fromkeys(hashes))
        self._forget()
        self.add(table)
