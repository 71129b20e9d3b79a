"""What a connector is: an input hands out splits, a reader turns a split into rows, an output takes changes.

Data is read inside Spark tasks, so the driver only handles *splits*: small descriptions of a range of input.
Reading a split again, at any time and on any machine, gives the same rows in the same order. That is what
makes a split worth recording: the input of a transaction can be repeated from its splits alone.

A source or a sink that cannot be reached raises `UnreachableError`: the same call is made again after a
pause, which grows. Any other `ConnectorError` is final.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
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
