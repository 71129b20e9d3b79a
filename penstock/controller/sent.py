"""What became of rows that were sent."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.controller.controller import Controller
from penstock.controller.work import Work


@dataclass(frozen=True)
class Sent:
    """Rows that were accepted, or are to be at the end of a `transaction` block."""

    rows: int
    _controller: Controller
    _work: Work | None

    @property
    def transaction(self) -> int | None:
        """The one that they belong to; None as long as they wait to be taken into one."""
        return None if self._work is None else self._work.transaction

    def wait(self) -> None:
        """Until they are in a transaction, which is journaled. Raises why it could not be evaluated."""
        if self._work is not None:
            self._work.done.wait()
            if self._work.error is not None:
                raise self._work.error

    @property
    def complete(self) -> bool:
        """Whether their transaction ended, and every output has it. Raises why it could not be evaluated."""
        work = self._work
        if work is None:
            return self.rows == 0
        if not work.done.is_set():
            return False
        if work.transaction is not None and self._controller.has_completed(work.transaction):
            return True
        if work.error is not None:
            raise work.error
        return False
