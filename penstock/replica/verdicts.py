"""Whether a transaction is run or skipped: whoever says it first has said it for all replicas.

A replica says that a transaction is run when it has evaluated it, before anything follows from that; and that
it is skipped when an operator wants that because it failed there. Each is the one attempt to create the
record of that transaction in a log, so only one of them can succeed, in whatever order they come.

A generation that is read-only says nothing, for it must not keep the one that runs from skipping anything. It
remembers up to which transaction it knows what was said, and compares what it did since then.
"""

from __future__ import annotations

import threading
from collections.abc import Container
from enum import StrEnum

from penstock.errors import DivergedError, ShardError, StorageError
from penstock.shard.stores.interface import Log


class Verdict(StrEnum):
    """What becomes of a transaction."""

    RUN = "run"
    SKIPPED = "skipped"


class Verdicts:
    """Those of one group. Any thread may ask."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name
        self._lock = threading.Lock()
        self.confirmed = -1
        """Up to this transaction it is known that this replica did what was said."""

    def of(self, number: int) -> Verdict | None:
        """What was said of a transaction; None: nothing yet. Raises `ShardError`, perhaps a passing one."""
        data = self._log.read(self._name, number)
        if data is None:
            return None
        try:
            return Verdict(data.decode())
        except ValueError as error:
            raise StorageError(
                f"what is said of transaction {number} in {self._log.label}/{self._name} cannot be"
                " understood. A newer Penstock may have written it; use that one."
            ) from error

    def say(self, number: int, verdict: Verdict) -> Verdict:
        """Say what becomes of a transaction, unless somebody has said it; returns what counts.

        After a `ShardError` that is `passing` nobody knows; the same call again finds out.
        """
        created = self._log.create(self._name, number, verdict.encode())
        if created and not (verdict is Verdict.SKIPPED and self._log.numbers(self._name, number)):
            return verdict
        found = None if created else self.of(number)
        if found is None:  # it was trimmed, and others have gone by it long ago
            raise ShardError(
                f"the group does not know any more what became of transaction {number}: this replica was away"
                " for too long. Start it with an empty storage directory."
            )
        return found

    def confirm(self, last: int, skipped: Container[int]) -> None:
        """Compare what this replica did up to transaction `last` with what was said since. Raises
        `DivergedError`."""
        with self._lock:
            while self.confirmed < last:
                number = self.confirmed + 1
                if (verdict := self.of(number)) is None:
                    return
                self._compare(number, verdict, skipped)

    def insist(self, last: int, skipped: Container[int]) -> None:
        """Say of all that this replica ran that it is run. Raises `DivergedError` if something of it was
        skipped."""
        with self._lock:
            while self.confirmed < last:
                number = self.confirmed + 1
                self._compare(number, self.say(number, Verdict.RUN), skipped)

    def _compare(self, number: int, verdict: Verdict, skipped: Container[int]) -> None:
        if verdict is Verdict.SKIPPED and number not in skipped:
            raise DivergedError(
                f"transaction {number} was skipped by the generation that runs, and this replica has run it:"
                " start this one anew, with an empty storage directory"
            )
        self.confirmed = number

    def trim(self, below: int) -> None:
        """Forget what was said of transactions that every replica has."""
        self._log.trim(self._name, below)
