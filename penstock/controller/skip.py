"""Go on without a transaction of a pipeline that is not running."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.controller.machine import State, refuse_skip
from penstock.controller.recovery import plan
from penstock.controller.storage import Storage
from penstock.errors import StateError
from penstock.journal.record import Kind, Record
from penstock.replica.config import GroupConfig
from penstock.replica.group import is_replica, skip_for_group


def skip_transaction(path: Path, number: int, group: Mapping[str, Any] | None = None) -> None:
    """Write into the journal that a transaction is skipped; it must be the last one, and not committed.

    `group` is where the group is, if the pipeline is a replica: the others have to skip it, too.
    """
    if is_replica(path) and group is None:
        raise StateError(
            f"{path} belongs to a replica, and the others have to skip transaction {number}, too: say where"
            " the group is, with --group"
        )
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
        if is_replica(path):
            skip_for_group(path, GroupConfig.of(group or {}, path.name), number)
        storage.journal.append(Record(Kind.SKIP, number, datetime.now(UTC), note={"reason": "asked for"}))
    finally:
        storage.close()
