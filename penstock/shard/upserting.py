"""Write a shard by key, together with others that do the same.

Several processes read one source, whose rows have keys and come at times that all of them agree on: offsets,
versions of a table, minutes that are over. Each gives the shard whole rows, or keys that are gone, and says
up to which time that is all. The shard gets each time once, from whoever is first, and has at most one row of
each key. What a new row takes back is nobody's to know but the shard's, so every one of them follows it.

Whoever does this has the rows of the shard in memory, and a few hundred bytes more for each.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import (
    BadRowError,
    BoundsError,
    DivergedError,
    LeaseExpiredError,
    ShardError,
    TimeGoneError,
)
from penstock.shard.keeping import Keeper
from penstock.shard.known import KnownRows, hashes_of
from penstock.shard.reader import ShardReader
from penstock.shard.rows import WEIGHT, with_times
from penstock.shard.shard import Shard
from penstock.shard.state import CLOSED
from penstock.shard.upsert import Emission, Rule, Upsert, rule
from penstock.shard.writer import ShardWriter

Changes = Iterable[tuple[bytes, bytes, int]]
"""As (key, row, weight), where keys and rows are the hashes that they are known by."""


class UpsertWriter:
    """One of perhaps several. One thread uses it; its signs of life have a thread of their own.

    Errors that are `passing` leave it as it was: call again. It may be stopped for longer than its lease.
    """

    def __init__(self, shard: Shard, keys: Sequence[str], purpose: str) -> None:
        """Begins with what the shard holds. `keys`: the columns of the key, the same for all writers."""
        names = shard.schema.names
        unknown = [key for key in keys if key not in names]
        if unknown or not keys:
            raise ShardError(
                f"{shard} has no key columns ({', '.join(unknown)}): name at least one of {', '.join(names)}"
            )
        self.shard = shard
        self._keys = pa.schema([shard.schema.field(key) for key in keys])
        self._purpose = purpose
        self._operator: Upsert[bytes, bytes] = Upsert()
        self._rows = KnownRows(shard.schema)
        self._reader_id = secrets.token_hex(8)
        self._writer = ShardWriter(shard, purpose)
        self._keeper = Keeper(shard, self._writer)
        self._keeper.start()
        try:
            self._hydrate()
        except BaseException:
            self.close()
            raise
        self.resume_upper = self.upper
        """The source is to be read from this time on: what was before is in the shard."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- where it stands ------------------------------------------------------------------------

    @property
    def sealed(self) -> int:
        """Before it, all input has come."""
        return self._operator.input_frontier

    @property
    def frontier(self) -> int:
        """Before it, this writer has nothing more to say."""
        return self._operator.frontier

    @property
    def upper(self) -> int:
        """Before it the shard has everything, whoever appended it, as far as this writer knows."""
        return self._operator.upper

    # -- what the source has --------------------------------------------------------------------

    def buffer(self, time: int, rows: pa.Table | None = None, deleted_keys: pa.Table | None = None) -> None:
        """Some of the input of a time: the new rows of some keys, and keys that are gone.

        What comes later counts, in a table as well as from call to call; in one call, rows come after
        deletions. Nothing of a call that raises was taken.
        """
        if not self.sealed <= time < CLOSED:
            raise BoundsError(
                f"{self.shard}: input at time {time} comes too late, for all before {self.sealed} was sealed;"
                f" or it is not before {CLOSED}"
            )
        gone = self._fitted(deleted_keys, self._keys)
        come = self._fitted(rows, self.shard.schema)
        if rule(time, self.upper) is Rule.DROP:
            return
        self._operator.buffer(time, ((key, None) for key in self._hashed(gone)))
        self._operator.buffer(time, zip(self._hashed(come), self._rows.add(come), strict=True))

    def seal(self, frontier: int) -> None:
        """All input before this time has come; `CLOSED` for a source that has ended."""
        if frontier > CLOSED:
            raise BoundsError(f"{self.shard}: there is no time {frontier}, the last frontier is {CLOSED}")
        self._operator.seal(frontier)

    def _fitted(self, table: pa.Table | None, schema: pa.Schema) -> pa.Table:
        """With the columns of the shard, in their types, and with whole keys."""
        if table is None:
            return schema.empty_table()
        for name in schema.names:
            if name not in table.column_names:
                raise BadRowError(
                    f"{self.shard}: the column {name!r} is missing, the rows have:"
                    f" {', '.join(table.column_names)}"
                )
        for name in self._keys.names:
            row = pc.index(pc.is_null(table.column(name)), True).as_py()
            if row >= 0:
                raise BadRowError(f"{self.shard}: row {row}: {name!r} is a key column, and it is NULL there")
        try:
            return table.select(schema.names).cast(schema)
        except (pa.ArrowException, ValueError) as error:
            raise BadRowError(f"{self.shard}: the rows do not fit its columns: {error}") from error

    def _hashed(self, table: pa.Table) -> list[bytes]:
        return hashes_of(table, self._keys.names)

    # -- what the shard gets --------------------------------------------------------------------

    def step(self) -> bool:
        """Take in what the shard got, and append what is due; whether the shard got on.

        To be called every now and then also while the source has nothing: as long as it is not, the shard
        keeps what this writer has not seen.
        """
        before = self.upper
        self._follow()
        emission = self._operator.emission()
        if emission is not None:
            self._append(emission)
            self._follow()
        return self.upper > before

    def flush(self) -> None:
        """Step until everything that was sealed is in the shard, whoever appends it.

        Every step gets on, or raises when the store has not answered for as long as the shard is patient.
        """
        while self.upper < self.sealed:
            self.step()

    def _append(self, emission: Emission[bytes, bytes]) -> None:
        """If somebody else is faster, so be it: then what is there now comes back as any change does."""
        table = self._table(emission) if emission.changes else None
        outcome = self._writer.compare_and_append(table, emission.lower, emission.upper)
        if outcome.diverged:
            raise DivergedError(
                f"{self.shard}: from time {emission.lower} to before {emission.upper} another writer appended"
                f" other changes than {self._purpose} would: they were given different rows. Look for what"
                " differs in their sources; the shard has what came first."
            )

    def _table(self, emission: Emission[bytes, bytes]) -> pa.Table:
        pieces = []
        for sign in (-1, 1):
            rows = self._rows.take(row for _, row, weight in emission.changes if weight == sign)
            weights = pa.repeat(pa.scalar(sign, pa.int64()), rows.num_rows)
            pieces.append(with_times(rows.append_column(WEIGHT, weights), emission.lower))
        return pa.concat_tables(pieces)

    # -- what the shard got ---------------------------------------------------------------------

    def _follow(self) -> None:
        """Take in what was appended since, by this writer too."""
        try:
            progress = self._reader.listen(self.upper)
        except (LeaseExpiredError, TimeGoneError):  # it was stopped for so long that it is not waited for
            self._hydrate()
            return
        if progress.upper > self.upper:
            self._feed(progress.upper, self._known(progress.changes))

    def _hydrate(self) -> None:
        """Begin, or begin anew, with everything that the shard holds; what is buffered stays."""
        while True:
            try:
                self._reader = ShardReader(self.shard, self._purpose, id_=self._reader_id)
                self._keeper.readers = [self._reader]
                upper = self.shard.upper
                changes = self._known(self._reader.snapshot(upper - 1)) if upper else ()
                break
            except (LeaseExpiredError, TimeGoneError):
                continue  # it was stopped for a whole lease again, right here
        before = [(key, row, -1) for key, row in self._operator.state.items()]
        self._feed(upper, [*before, *changes])

    def _known(self, table: pa.Table) -> Changes:
        return zip(self._hashed(table), self._rows.add(table), table.column(WEIGHT).to_pylist(), strict=True)

    def _feed(self, upper: int, changes: Changes) -> None:
        try:
            self._operator.feedback(upper, changes)
        except DivergedError:
            self._refuse_several(self._reader.snapshot(upper - 1))
            raise
        self._reader.release(upper - 1)
        if self._rows.is_mostly_waste(len(self._operator.state) + self._operator.held):
            self._rows.keep(self._operator.rows)

    def _refuse_several(self, table: pa.Table) -> None:
        """Name the first key that has several rows, or one that is there several times."""
        seen: set[bytes] = set()
        weights = table.column(WEIGHT).to_pylist()
        for index, (key, weight) in enumerate(zip(self._hashed(table), weights, strict=True)):
            if key in seen or weight != 1:
                shown = ", ".join(f"{name} = {table.column(name)[index]}" for name in self._keys.names)
                raise DivergedError(
                    f"{self.shard} has several rows with {shown}: somebody writes it who does not know its"
                    " key, or knows another one. Upsert into a shard of its own."
                )
            seen.add(key)

    def close(self) -> None:
        """Be gone. What is sealed and not flushed is left to the others."""
        self._keeper.stop()
        for reader in self._keeper.readers:
            reader.close()
        self._writer.close()
