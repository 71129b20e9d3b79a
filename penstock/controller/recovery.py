"""From the last saved state to the state in which the pipeline ended, however it ended."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa

from penstock.controller.storage import Saved, Storage
from penstock.engine.engine import Engine
from penstock.engine.relations import CLOCK
from penstock.errors import EvaluationError, StorageError

_log = logging.getLogger("penstock")


def recover(engine: Engine, storage: Storage, saved: Saved) -> tuple[int, Counter[str]]:
    """Load the saved state and run again what was recorded after it.

    Returns the number of the last transaction and how many rows each relation has. The record of a
    transaction is written before it is evaluated, so the last one may never have been: it takes
    effect now. If it cannot be evaluated it is dropped, as it would have been then.
    """
    engine.state.load(saved.traces)
    engine.circuit.prepare()
    rows = Counter(saved.rows)
    transaction = saved.transaction
    unknown = set(engine.circuit.traces) - set(saved.circuit)
    if transaction >= 0 and unknown:
        raise StorageError(
            f"Spark plans the program otherwise than when {storage.path} was written: the saved state lacks"
            f" {', '.join(sorted(unknown))}. Use the version of Spark and Penstock that wrote it, or start"
            " with an empty directory."
        )
    if transaction < 0:
        rows.update(_initial(engine, storage))
        transaction = 0
    replayed = 0
    for recorded in storage.journal.after(transaction):
        try:
            result = engine.run(recorded.transaction, recorded.inputs, now=recorded.now)
        except EvaluationError as error:
            _log.error("%s", error)
            storage.journal.drop(recorded.transaction)
            break
        rows.update(result.growth)
        transaction = recorded.transaction
        replayed += 1
    if replayed:
        _log.warning("recovered transactions %d to %d", transaction - replayed + 1, transaction)
    return transaction, rows


def _initial(engine: Engine, storage: Storage) -> dict[str, int]:
    """What views contain before any input: constant rows, and aggregates over nothing."""
    now = datetime.now(UTC)
    inputs = {CLOCK: storage.journal.stage(0, CLOCK, clock_row(now))} if engine.uses_clock else {}
    growth = engine.run(0, inputs, now=now, initial=True).growth
    storage.journal.drop(0)
    return dict(growth)


def clock_row(now: datetime) -> pa.Table:
    """The clock's one row, as input."""
    return pa.table(
        {
            "id": pa.array([0], pa.int32()),
            "now": pa.array([now], pa.timestamp("us", "UTC")),
            "_op": pa.array([1], pa.int8()),
        }
    )
