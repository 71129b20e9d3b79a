"""Go on without a transaction of a pipeline that is not running."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from penstock.controller.machine import State, refuse_skip
from penstock.controller.recovery import plan
from penstock.controller.storage import Storage
from penstock.errors import StateError
from penstock.journal.record import Kind, Record


def skip_transaction(path: Path, number: int) -> None:
    """Write into the journal that a transaction is skipped; it must be the last one, and not committed."""
    storage = Storage(path, create=False)
    try:
        restored = storage.read()
        if restored is None:
            raise StateError(f"{path} holds no pipeline")
        saved = restored.checked.saved
        entries = storage.journal.open(saved.record)
        machine = plan(entries, saved.transaction, {}, lambda _: True, saved.first).machine
        if machine.state is State.READY or machine.number != number:
            under_way = "none" if machine.state is State.READY else f"transaction {machine.number}"
            raise StateError(
                f"transaction {number} cannot be skipped: the one that waits in {path} is {under_way}"
            )
        refuse_skip(number, saved.first)
        storage.journal.append(Record(Kind.SKIP, number, datetime.now(UTC), note={"reason": "asked for"}))
    finally:
        storage.close()
