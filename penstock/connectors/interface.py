"""What a connector is: an input hands out splits, a reader turns a split into rows, an output takes changes.

Data is read inside Spark tasks, so the driver only handles *splits*: small descriptions of a range of input.
Reading a split again, at any time and on any machine, gives the same rows in the same order. That is what
makes a split worth recording: the input of a transaction can be repeated from its splits alone.

A source or a sink that cannot be reached raises `UnreachableError`: the same call is made again after a
pause, which grows. Any other `ConnectorError` is final.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

import pyarrow as pa

from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table, View

OP_COLUMN = "_op"
"""The column a reader adds after the table's own: `INSERT` or `DELETE`."""

INSERT = 1
DELETE = -1

ERROR_COLUMN = "_error"
"""The column after `_op` of a reader that knows the key of a record that it cannot read: what is wrong with
it, and its text, as JSON. The row of that key is gone then (`DELETE`), and the error takes its place."""

READING = "reading"
"""Where in the payload of a split, while it is read, `Input.reading` stands."""

OP_FIELD = pa.field(OP_COLUMN, pa.int8(), nullable=False)

MAX_BATCH_ROWS = 65_536
"""Readers yield batches of at most this many rows."""


@dataclass(frozen=True)
class Split:
    """A range of input that can be read any number of times with the same result."""

    source: str
    """Registry name of the reader."""
    payload: Mapping[str, Any]
    """What the reader needs, as plain JSON."""
    rows: int | None = None
    """Number of rows, exact or estimated, if anything is known about it."""


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be read as a row of its table."""

    position: str
    """Where it stands, for people: `orders.csv, line 17`."""
    reason: str
    record: str
    """The record itself, as text."""


Reject: TypeAlias = Callable[[BadRecord], None]
"""What a reader does with a record that it cannot read, before it goes on with the next."""


def refuse(bad: BadRecord) -> None:
    """The `Reject` for those who want all records or none."""
    raise ConnectorError(f"{bad.position}: {bad.reason}")


NOTHING = -1
"""The last transaction of an output that has none yet; the first transaction is 0."""


class Input(ABC):
    """The driver's side of one input connector of a table.

    One thread at a time calls it. It has no state beyond its configuration and its position.
    """

    name: str

    replica: str = ""
    """What tells this run from the other replicas of its group, over restarts too; empty if there is none."""

    @classmethod
    @abstractmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        """Raise `ConnectorError` saying which field is wrong and what was expected."""

    @abstractmethod
    def poll(self, max_rows: int) -> list[Split]:
        """What is new, at most about `max_rows`; an empty list if there is nothing right now."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """True once no more input will ever come."""

    @property
    @abstractmethod
    def position(self) -> Any:
        """Where the next poll goes on, as plain JSON."""

    @abstractmethod
    def seek(self, position: Any) -> None:
        """Go on from a position that an input with the same configuration had, perhaps in another process."""

    def has_reached(self, position: Any, earlier: Any) -> bool:
        """Whether an input that stands at a position has handed out all that one had which stood at another
        one, earlier or elsewhere; False if that cannot be told. Any thread may call it."""
        found: bool = position == earlier
        return found

    @property
    def reading(self) -> Mapping[str, Any]:
        """What its reader needs beside a split's own payload, and may be another after a restart, such as the
        address of a server; it is not recorded. Nothing by default."""
        return {}

    def readable(self, splits: Sequence[Split]) -> Sequence[Split]:
        """What of recorded splits can still be read. Raises if a part of it cannot be and the configuration
        does not allow for that. Any thread may call it. All of it, by default."""
        return splits

    def may_lack(self, splits: Sequence[Split]) -> bool:
        """Recorded splits, which can be read, give fewer rows than they did: whether that is in order. Raises
        if the source lets go of rows and the configuration does not allow for that. It is not, by default."""
        return False

    def hold(self, splits: Sequence[Split]) -> None:
        """Another replica handed these out, and this one will read them, too: a source that lets go of what
        nobody needs has to know. Any thread may call it. Nothing by default."""
        return

    def acknowledge(self, position: Any) -> None:
        """What was handed out up to this position is in a transaction that has ended: a source that wants to
        know can be told. It may be read again all the same, by a replay. Nothing by default."""
        return

    def release(self, position: Any) -> None:
        """Nothing before this position will be read again, by no replay either: a source that keeps it only
        for this input can let go of it. Nothing by default."""
        return

    def leave(self) -> None:
        """Nothing will be read any more, by no later run either: a source need not wait for it. Called before
        `close`. Nothing by default."""
        return

    def stats(self) -> Mapping[str, Any]:
        """What there is to say about the source; any thread may call it. Nothing by default."""
        return {}

    def close(self) -> None:
        """Release what the input holds; nothing by default."""
        return


class Output(ABC):
    """The driver's side of one output connector of a view.

    Transactions come in increasing order; those that do not change the view do not come at all. One thread at
    a time calls it.
    """

    name: str

    remembers: ClassVar[bool] = True
    """Whether it knows, after a crash at any moment, which transactions it has: it gets each exactly once."""

    by_every_replica: ClassVar[bool] = False
    """Whether each replica of a pipeline writes it: because it takes a transaction once, whoever is first, or
    because each has its own. If not, one of them writes it at a time."""

    @classmethod
    @abstractmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        """Raise `ConnectorError` saying which field is wrong and what was expected; write nothing yet."""

    @abstractmethod
    def open(self, owner: str, schema: pa.Schema) -> int:
        """Get ready for the transactions of `owner`; returns the last of them that it has, or `NOTHING`.

        `owner` names the pipeline's storage and stays the same when the pipeline is started again. What is
        there of a transaction that was not finished is taken away. What another owner left is replaced where
        that is safe and otherwise refused. `schema` has the columns of the view.
        """

    @abstractmethod
    def write(self, transaction: int, changes: pa.Table) -> None:
        """Deliver the changes of one transaction: the view's columns, `_change_type` and `_weight`.

        When this returns they are durable, if the output `remembers`. Called again after it failed, with the
        same changes, it must not deliver them twice.
        """

    @property
    def is_stale(self) -> bool:
        """Whether it has what an earlier generation of replicas computed, which is perhaps not what this one
        computes; known when it is open."""
        return False

    def write_whole(self, transaction: int, rows: pa.Table) -> None:
        """Deliver all rows of the view after a transaction, as changes: it has nothing yet, or it `is_stale`.
        Like `write`, it may be repeated."""
        self.write(transaction, rows)

    advances: ClassVar[bool] = False
    """Whether it wants to know how far the transactions are, also of those that do not change the view."""

    def advance(self, transaction: int) -> None:
        """It has every change up to this transaction, if it `advances`. Like `write`, it may be repeated."""
        return

    @property
    def forgot(self) -> str | None:
        """Why it may have had transactions that it knows nothing of any more, though nobody emptied it, and
        what to do; asked when `open` has found fewer than there were. It never does, by default."""
        return None

    def close(self) -> None:
        """Finish what was written; nothing by default."""
        return


class Reader(Protocol):
    """Turns a split's payload into batches of the table's columns and `_op`; runs in a Spark task."""

    def __call__(
        self, payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject, /
    ) -> Iterator[pa.RecordBatch]: ...


def with_op(batch: pa.RecordBatch, op: int | pa.Array) -> pa.RecordBatch:
    """The batch with `_op` as its last column."""
    ops = pa.repeat(pa.scalar(op, pa.int8()), batch.num_rows) if isinstance(op, int) else op
    return batch.append_column(OP_FIELD, ops)


def in_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table's rows in batches of at most `MAX_BATCH_ROWS`; none for an empty table."""
    return (batch for batch in table.to_batches(max_chunksize=MAX_BATCH_ROWS) if batch.num_rows)
