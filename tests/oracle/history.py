"""Seeded random histories: transactions of inserts, updates and deletes over all tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from tests.oracle.domains import RowMaker
from tests.oracle.model import Action, Model, Operation, Row, TableModel, TableSchema, Transaction

DEFAULT_SEED = 20240229


def seed_of_run() -> int:
    """The seed of this run: fixed, unless PENSTOCK_SEED says otherwise."""
    return int(os.environ.get("PENSTOCK_SEED", DEFAULT_SEED))


@dataclass(frozen=True)
class History:
    """Transactions in order, and the seed that makes them again."""

    seed: int
    transactions: tuple[Transaction, ...]


@dataclass(frozen=True)
class Sizes:
    """How many rows a history touches."""

    load: int = 24
    rows: int = 4
    operations: int = 3


SMALL = Sizes()


def random_history(
    tables: Iterable[TableSchema],
    makers: Mapping[str, RowMaker],
    *,
    seed: int,
    transactions: int,
    stream: int = 0,
    sizes: Sizes = SMALL,
) -> History:
    """A load of every table, then random transactions.

    Half way one table is emptied, so that its groups vanish, and it is loaded again in the next.
    `stream` tells apart the histories that one run makes of its one seed.
    """
    rng = Random(f"{seed}/{stream}")
    model = Model(tables)
    victim = rng.choice(list(model.tables))
    done = []
    for number in range(transactions):
        if number == 0:
            transaction = _load(rng, model.tables, makers, sizes)
        elif number == transactions // 2:
            transaction = (Operation(Action.DELETE, victim, tuple(model.tables[victim].rows)),)
        elif number == transactions // 2 + 1:
            transaction = _load(rng, [victim], makers, sizes)
        else:
            done.append(_random_transaction(rng, model, makers, sizes))
            continue
        model.apply(transaction)
        done.append(transaction)
    return History(seed, tuple(done))


def _load(rng: Random, tables: Iterable[str], makers: Mapping[str, RowMaker], sizes: Sizes) -> Transaction:
    return tuple(
        Operation(Action.INSERT, name, tuple(makers[name](rng) for _ in range(sizes.load))) for name in tables
    )


def _random_transaction(
    rng: Random, model: Model, makers: Mapping[str, RowMaker], sizes: Sizes
) -> Transaction:
    """A few operations per table, each seeing the rows of the ones before it."""
    transaction: list[Operation] = []
    for name, table in model.tables.items():
        for _ in range(rng.randrange(sizes.operations)):
            operation = _random_operation(rng, name, table, makers[name], sizes.rows)
            model.apply((operation,))
            transaction.append(operation)
    return tuple(transaction)


def _random_operation(rng: Random, name: str, table: TableModel, maker: RowMaker, rows: int) -> Operation:
    count = rng.randrange(1, rows + 1)
    present = table.rows
    if present and rng.random() < 0.4:
        return Operation(Action.DELETE, name, tuple(rng.sample(present, min(count, len(present)))))
    if rng.random() < 0.1:
        return Operation(Action.DELETE, name, (_stranger(rng, table.table, maker),))
    inserted: list[Row] = [maker(rng) for _ in range(count)]
    if present and rng.random() < 0.5:
        inserted.append(_touch(rng, table.table, rng.choice(present), maker))
    if rng.random() < 0.2:
        inserted.append(inserted[0])
    return Operation(Action.INSERT, name, tuple(inserted))


def _stranger(rng: Random, table: TableSchema, maker: RowMaker) -> Row:
    """A row that no table ever holds: deleting it must change nothing."""
    row = maker(rng)
    return {**row, next(iter(table.primary_key), "k" if "k" in row else next(iter(row))): -999}


def _touch(rng: Random, table: TableSchema, row: Row, maker: RowMaker) -> Row:
    """With a key: an update of the row in a few columns. Without: a duplicate of it."""
    if not table.primary_key:
        return row
    fresh = maker(rng)
    # A hierarchy stays acyclic only if the reference fits the key, so references are not mixed in.
    free = [name for name in fresh if name not in table.primary_key and not name.endswith("_id")]
    return {**row, **{name: fresh[name] for name in rng.sample(free, min(2, len(free)))}}
