"""`shard_output`: the changes of a view, durable, for any number of readers.

A transaction's number is its time in the shard. The shard itself knows how far it is, and takes a transaction
only where the one before it ended: so each is there once, however often it is delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.config import Section
from penstock.connectors.interface import NOTHING, Output
from penstock.connectors.shard import FIELDS, name_of, place_of, told
from penstock.errors import ConnectorError, DivergedError, PenstockError, TimeGoneError
from penstock.shard.keeping import Keeper
from penstock.shard.rows import TIME, WEIGHT, changes_hash, schema_with_time, with_times
from penstock.shard.shard import Shard
from penstock.shard.state import CLOSED, NO_CHANGES, Fence
from penstock.shard.stores.place import Place, PlaceConfig
from penstock.shard.writer import ShardWriter

if TYPE_CHECKING:
    from penstock.sql import Connector, View

_log = logging.getLogger("penstock")


class ShardOutput(Output):
    """Appends each transaction to one shard."""

    advances = True
    by_every_replica = True

    def __init__(
        self, name: str, config: PlaceConfig, shard: str, until: Callable[[], int] = lambda: CLOSED
    ) -> None:
        """`until`: see `Keeper`."""
        self.name = name
        self._until = until
        self.fence: Callable[[], Fence] = Fence
        """What it writes with: nothing of an earlier generation is taken afterwards."""
        self.running: Callable[[], int] = lambda: 0
        """The generation that writes it while this one follows."""
        self._followed: tuple[int, int] | None = None
        """That generation, and the first transaction of which it wrote what it computed."""
        self.written = NOTHING
        """The last transaction that it wrote."""
        self._config = config
        self._shard_name = shard
        self._place: Place | None = None
        self._writer: ShardWriter | None = None
        self._keeper: Keeper | None = None
        self._upper = 0
        self._stale = False
        self._next: int | None = None
        """The first transaction that it was not given yet, if it was given any."""

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}"
        if connector.config.get("format") is not None:
            raise ConnectorError(f"{where}: a shard has its own format; remove 'format'")
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(FIELDS)
        return cls(connector.name, place_of(config), name_of(config, view.name))

    def open(self, owner: str, schema: pa.Schema) -> int:
        for name in (TIME, WEIGHT):
            if name in schema.names:
                raise ConnectorError(
                    f"connector {self.name}: a shard has a column {name!r}; rename the view's"
                )
        self.close()
        with told(self.name):
            self._place = self._config.opened()
            shard = Shard.open(self._place, self._shard_name, _plain(schema), owner=f"{owner}/{self.name}")
            fence = self.fence()
            self._stale = shard.machine.state.fence.generation < fence.generation and shard.upper > 0
            self._writer = ShardWriter(shard, f"connector {self.name}", fence)
            self._keeper = Keeper(shard, self._writer, until=self._until)
            self._keeper.start()
            self._upper, self._next = shard.machine.state.upper, None
        return self._upper - 1 if self._upper else NOTHING

    @property
    def is_stale(self) -> bool:
        return self._stale

    @contextmanager
    def _watched(self) -> Iterator[Shard | None]:
        """The shard, while another generation writes it; None if it is not there."""
        place = self._config.opened()
        try:
            with told(self.name):
                there = bool(place.log.numbers(self._shard_name))
                yield Shard.open(place, self._shard_name) if there else None
        finally:
            place.close()

    def follow(self, changes: Sequence[tuple[int, pa.Table]], begin: int, last: int) -> int:
        """How far another generation has written it, at most up to transaction `last`: what it wrote since
        `begin` must be these changes, which this generation computed. Raises `DivergedError`."""
        with self._watched() as shard:
            if shard is None:
                return NOTHING
            state = shard.machine.state
            last = min(last, state.upper - 1)
            self.written = state.upper - 1
            lower = max(begin, self._begin_of(self.running(), state.upper))
            schema = schema_with_time(shard.schema)
            hashes = {n: changes_hash(_at(c, n, schema)) for n, c in changes if lower <= n <= last}
        for number in sorted({*hashes, last}):
            found = state.disagreement(lower, number, hashes.get(number, NO_CHANGES))
            if lower <= number and found is not None:
                raise DivergedError(
                    f"the shard {self._shard_name} has other changes for transaction {found} than this"
                    " generation computed, though its view is the same: one of the two is wrong. Compare"
                    " their versions, and start this one anew, with an empty storage directory."
                )
            lower = number + 1
        return last

    def _begin_of(self, generation: int, upper: int) -> int:
        """The first transaction that a generation wrote as it computes it: one that took over may have
        brought the shard over, now or before."""
        if self._followed is None:
            self._followed = (generation, upper if generation else 0)
        return self._followed[1] if self._followed[0] == generation else CLOSED

    def check(self, schema: pa.Schema) -> None:
        """Refuse if the shard is there and has other columns."""
        with self._watched() as shard:
            if shard is not None and not shard.schema.equals(_plain(schema)):
                raise ConnectorError(
                    f"connector {self.name}: the shard {self._shard_name} has other columns than this program"
                    " would write: give it another name, or keep the columns"
                )

    def take_over(self) -> None:
        """What another generation wrote is what this one would have written, and it writes no more."""
        with self._watched() as shard:
            if shard is not None:
                shard.raise_fence(self.fence())

    def write_whole(self, transaction: int, rows: pa.Table) -> None:
        """What there is that should not be goes, what should be and is not comes; then the generation before
        may write no more. It cannot have written in between, for then the upper would be another one."""
        assert self._writer is not None, "it was opened"
        shard = self._writer.shard
        with told(self.name):
            appended = False
            while not appended and (upper := shard.upper) <= transaction:
                wanted = _signed(rows)
                if upper > 0:
                    try:
                        there = shard.snapshot(upper - 1)
                    except TimeGoneError:
                        continue  # another replica was faster
                    weights = pc.negate(there.column(WEIGHT))
                    gone = there.set_column(there.schema.get_field_index(WEIGHT), WEIGHT, weights)
                    wanted = pa.concat_tables([wanted.cast(gone.schema), gone])
                changes = with_times(wanted, transaction)
                appended = self._writer.compare_and_append(changes, upper, transaction + 1).appended
            if appended:
                shard.raise_fence(self.fence())
            state = shard.machine.refresh()
            self._stale = state.fence.generation < self.fence().generation
            self._upper, self._next = state.upper, max(transaction + 1, state.upper)

    def write(self, transaction: int, changes: pa.Table) -> None:
        self._append(transaction, with_times(_signed(changes), transaction))

    def advance(self, transaction: int) -> None:
        self._append(transaction, None)

    def finish(self) -> None:
        """Nothing will come any more, for good: close the shard, so that those who read it end too."""
        if self._writer is not None:
            with told(self.name):
                self._writer.compare_and_append(None, self._upper, CLOSED)

    def _append(self, transaction: int, changes: pa.Table | None) -> None:
        """At a transaction before the upper it is there already; at the upper it is appended."""
        assert self._writer is not None, "it was opened"
        alone = True
        with told(self.name):
            alone = self._upper <= transaction
            while self._upper <= transaction:
                outcome = self._writer.compare_and_append(changes, self._upper, transaction + 1)
                self._upper, alone = outcome.upper, alone and outcome.appended
            if not alone:
                self._compare(transaction, changes)
        self._next = transaction + 1

    def _compare(self, transaction: int, changes: pa.Table | None) -> None:
        """Another replica was faster: it must have computed the same."""
        assert self._writer is not None, "it was opened"
        hash_ = NO_CHANGES if changes is None else self._writer.hash_of(changes)
        lower = transaction if self._next is None else self._next
        found = self._writer.shard.machine.state.disagreement(lower, transaction, hash_)
        if found is not None:
            raise DivergedError(
                f"the shard {self._shard_name} has other changes for transaction {found} than this pipeline"
                " computed. If they are replicas, one of them is wrong: compare their programs and versions,"
                " and start the wrong one anew, with an empty storage directory. If not, give this output"
                " another shard."
            )

    def close(self) -> None:
        keeper, writer, place = self._keeper, self._writer, self._place
        self._keeper = self._writer = self._place = None
        if keeper is not None:
            keeper.stop()
        try:
            if writer is not None:
                writer.close()
        except PenstockError as error:  # others notice by themselves that it is gone
            _log.warning("connector %s: %s", self.name, error)
        if place is not None:
            place.close()


def _at(changes: pa.Table, transaction: int, schema: pa.Schema) -> pa.Table:
    """The changes of a transaction as a shard has them."""
    return with_times(_signed(changes), transaction).select(schema.names).cast(schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The columns as a shard has them: whether they may be NULL can change with the view's query."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _signed(changes: pa.Table) -> pa.Table:
    """With a signed weight instead of a kind of change."""
    weights = changes.column("_weight").to_numpy()
    deleted = pc.equal(changes.column("_change_type"), "delete").to_numpy()
    signed = pa.array(np.where(deleted, -weights, weights), pa.int64())
    return changes.drop_columns(["_change_type", "_weight"]).append_column(WEIGHT, signed)
