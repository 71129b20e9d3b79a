"""`shard_input`: the rows of a shard that another pipeline writes, and then every change of them.

It begins with all rows as they are, and goes on with whole transactions of the writer, as many at once as
there are. What a replay may have to read again is held back in the shard, for as long as `lease_seconds` also
while this pipeline does not run. Replicas share positions, but each of them is a reader of its own: what one
needs no more another one may not have read yet.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock.connectors.columns import cast_column
from penstock.connectors.config import Section
from penstock.connectors.interface import (
    DELETE,
    ERROR_COLUMN,
    INSERT,
    OP_FIELD,
    READING,
    Input,
    Reject,
    Split,
    in_batches,
    with_op,
)
from penstock.connectors.misfit import BadValueError
from penstock.connectors.shard import FIELDS, name_of, place_of, told
from penstock.errors import ConnectorError, PenstockError
from penstock.shard.keeping import Keeper
from penstock.shard.pace import Pace
from penstock.shard.reader import ShardReader
from penstock.shard.rows import TIME, WEIGHT
from penstock.shard.shard import Shard
from penstock.shard.state import Batch, State
from penstock.shard.stores.place import Place, PlaceConfig

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

_log = logging.getLogger("penstock")

SOURCE = "shard"

LEASE_SECONDS = 24 * 60 * 60

_LOOK_SECONDS = 0.1
"""How often the shard is asked whether there is more, if there was some lately."""


class ShardInput(Input):
    """Hands out times of a shard, from one to before another."""

    def __init__(
        self, name: str, config: PlaceConfig, shard: str, columns: Sequence[str], lease: float
    ) -> None:
        self.name = name
        self._config = config
        self._shard_name = shard
        self._columns = list(columns)
        self._lease = lease
        self._place: Place | None = None
        self._shard: Shard | None = None
        self._reader: ShardReader | None = None
        self._keeper: Keeper | None = None
        self._position: dict[str, Any] = {}
        self._looked = 0.0
        self._pace = Pace(_LOOK_SECONDS, 0.0)
        self._pause = _LOOK_SECONDS
        self._upper = 0
        self._lock = threading.RLock()
        """Held while the shard is opened, or a reader is made."""

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        if connector.config.get("format") is not None:
            raise ConnectorError(f"{where}: a shard has its own format; remove 'format'")
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only([*FIELDS, "lease_seconds"])
        lease = config.count("lease_seconds", least=1)
        columns = [column.name for column in table.columns]
        place = place_of(config)
        return cls(connector.name, place, name_of(config, table.name), columns, lease or LEASE_SECONDS)

    # -- what is new ----------------------------------------------------------------------------

    def poll(self, max_rows: int) -> list[Split]:
        now = time.monotonic()
        if now - self._looked < self._pause:
            return []
        self._looked = now
        with told(self.name), self._lock:
            shard = self._opened()
            state = shard.machine.refresh()
            self._pause = self._pace.after(state.upper)
            self._upper = state.upper
            if state.upper == 0:
                return []
            if "frontier" not in self._position:
                return [self._snapshot(shard, state)]
            self._attach(shard)
            lower = self._position["frontier"]
            upper = state.last + 1
            return [self._range(state, lower, upper)] if upper > lower else []

    def _range(self, state: State, lower: int, upper: int) -> Split:
        rows = sum(_share(batch, lower, upper) for batch in state.between(lower, upper))
        self._position = {**self._position, "frontier": upper}
        return Split(SOURCE, {"name": self._shard_name, "lower": lower, "upper": upper}, rows)

    def _snapshot(self, shard: Shard, state: State) -> Split:
        """Everything there is, as it is at one time."""
        reader = self._reader or self._use(shard, None, self._own_id)
        at = max(reader.since, state.last)
        self._position = {"shard": state.shard, "frontier": at + 1}
        if not self.replica:
            self._position["reader"] = reader.id
        rows = sum(batch.rows for batch in state.batches)
        return Split(SOURCE, {"name": self._shard_name, "at": at}, rows)

    def _opened(self) -> Shard:
        if self._shard is None:
            self._place = self._config.opened()
            shard = Shard.open(self._place, self._shard_name)
            known = {name.lower() for name in shard.schema.names}
            lacks = [name for name in self._columns if name.lower() not in known]
            if lacks:
                raise ConnectorError(
                    f"connector {self.name}: the shard {self._shard_name} has no column {lacks[0]!r}; it has:"
                    f" {', '.join(shard.schema.names)}"
                )
            self._shard = shard
            self._pace = Pace(_LOOK_SECONDS, self._place.log.rest)
        return self._shard

    def _attach(self, shard: Shard) -> None:
        """Be the reader again that this input was before."""
        if self._reader is not None:
            return
        if shard.machine.state.shard != self._position["shard"]:
            raise ConnectorError(
                f"connector {self.name}: the shard {self._shard_name} was deleted and made anew. Start this"
                " pipeline anew, with an empty storage directory."
            )
        self._use(shard, self._position["frontier"] - 1, self._own_id or self._position["reader"])

    @property
    def _own_id(self) -> str:
        """What a replica is called as a reader; empty if this is none, and the position has it."""
        return f"{self.replica}/{self.name}" if self.replica else ""

    def _use(self, shard: Shard, since: int | None, id_: str) -> ShardReader:
        self._reader = ShardReader(shard, f"connector {self.name}", since, id_=id_, lease=self._lease)
        self._keeper = Keeper(shard, None, [self._reader])
        self._keeper.start()
        return self._reader

    def hold(self, splits: Sequence[Split]) -> None:
        if not splits:
            return
        with told(self.name), self._lock:
            if self._reader is None:
                self._use(self._opened(), min(_held(split) for split in splits), self._own_id)

    # -- where it stands ------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        state = None if self._shard is None else self._shard.machine.state
        return state is not None and state.closed and self._position.get("frontier", 0) > state.last

    @property
    def position(self) -> Any:
        return dict(self._position)

    def seek(self, position: Any) -> None:
        self._position = dict(position or {})
        self._looked = 0.0

    def has_reached(self, position: Any, earlier: Any) -> bool:
        same = position.get("shard") == earlier.get("shard")
        return same and bool(position.get("frontier", 0) >= earlier.get("frontier", 0))

    @property
    def reading(self) -> Mapping[str, Any]:
        return {"place": self._config.plain}

    def readable(self, splits: Sequence[Split]) -> Sequence[Split]:
        if not splits:
            return splits
        with told(self.name):
            place = self._config.opened()  # any thread may call this
            try:
                state = Shard.open(place, self._shard_name).machine.state
                for split in splits:
                    if "at" in split.payload:
                        state.refuse_gone(split.payload["at"])
                    else:
                        state.exact_from(split.payload["lower"])
            finally:
                place.close()
        return splits

    def release(self, position: Any) -> None:
        if self._reader is not None and position:
            with told(self.name):
                self._reader.downgrade_since(position["frontier"] - 1)

    def stats(self) -> Mapping[str, Any]:
        frontier = self._position.get("frontier", 0)
        return {"shard": self._shard_name, "upper": self._upper, "frontier": frontier}

    def leave(self) -> None:
        keeper, reader = self._keeper, self._reader
        self._keeper = self._reader = None
        if keeper is not None:
            keeper.stop()
        try:
            if reader is not None:
                reader.close()
        except PenstockError as error:  # its lease ends by itself
            _log.warning("connector %s: %s", self.name, error)

    def close(self) -> None:
        """Leave the reader where it is: it is waited for."""
        if self._keeper is not None:
            self._keeper.stop()
        if self._place is not None:
            self._place.close()
        self._keeper = self._reader = self._shard = self._place = None


def _held(split: Split) -> int:
    """The first time that must be readable for a split."""
    return int(split.payload["at"]) if "at" in split.payload else max(0, split.payload["lower"] - 1)


def _share(batch: Batch, lower: int, upper: int) -> int:
    """About how many of a batch's rows lie between two times."""
    within = min(batch.upper, upper) - max(batch.lower, lower)
    return -(-batch.rows * within // (batch.upper - batch.lower))


def read_shard(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any], _reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of a shard at one time, or its changes from one time to before another, in their order."""
    name = payload["name"]
    place = PlaceConfig.of(payload[READING]["place"]).opened()
    try:
        with told(f"of the shard {name}"):
            shard = Shard.open(place, name)
            if "at" in payload:
                table = shard.snapshot(payload["at"])
            else:
                table = shard.changes(payload["lower"], payload["upper"])
    finally:
        place.close()
    made = _errors if payload.get("errors") else _batch
    for batch in in_batches(_in_order(table)):
        yield made(batch, schema, name)


def _in_order(table: pa.Table) -> pa.Table:
    """By time, deletions first, each row as often as it is there."""
    weights = table.column(WEIGHT).to_numpy()
    times = table.column(TIME).to_numpy() if TIME in table.column_names else np.zeros(len(weights), np.int64)
    order = np.lexsort((weights > 0, times))
    return table.take(pa.array(np.repeat(order, np.abs(weights[order]))))


def _errors(batch: pa.RecordBatch, schema: pa.Schema, _name: str) -> pa.RecordBatch:
    """What could not be read, by key, as it was given by the reader that could not read it."""
    from penstock.plan.rules.table import ERROR_FIELDS  # with Spark, which the command line does without

    texts = zip(*(batch.column(field).to_pylist() for field in ERROR_FIELDS), strict=True)
    known = batch.schema.names
    columns = [
        batch.column(f.name).cast(f.type) if f.name in known else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    ops = pa.array(np.full(batch.num_rows, DELETE), pa.int8())
    errors = pa.array([json.dumps(text) for text in texts], pa.string())
    nullable = [field.with_nullable(True) for field in schema]
    return pa.RecordBatch.from_arrays(
        [*columns, ops, errors], schema=pa.schema([*nullable, OP_FIELD, pa.field(ERROR_COLUMN, pa.string())])
    )


def _batch(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    found = {field.lower(): field for field in batch.schema.names}
    columns = []
    for field in schema:
        try:
            columns.append(cast_column(batch.column(found[field.name.lower()]), field.type))
        except BadValueError as bad:
            raise ConnectorError(f"the shard {name}: its column {field.name} does not fit: {bad}") from bad
    ops = np.where(batch.column(WEIGHT).to_numpy() > 0, INSERT, DELETE)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return with_op(rows, pa.array(ops, pa.int8()))
