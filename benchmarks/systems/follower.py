"""Follows the changes of an answer that a streaming engine emits row by row, and tells when it is complete.

Such an engine has no transaction to wait for. What it has emitted is complete when it equals the answer that
was computed with the workload; a wrong engine never gets there, and is reported after a while.
"""

from __future__ import annotations

import threading

from benchmarks.workload import Answer

PATIENCE = 900.0


class Follower:
    """An answer that one thread changes and another waits for."""

    def __init__(self) -> None:
        self.answer: Answer = {}
        self._expected: Answer = {}
        self._wrong: set[tuple[str, str]] = set()
        self._changed = threading.Condition()

    def expect(self, answer: Answer) -> None:
        with self._changed:
            self._expected = answer
            groups = answer.keys() | self.answer.keys()
            self._wrong = {group for group in groups if self.answer.get(group) != answer.get(group)}

    def put(self, group: tuple[str, str], values: tuple[int, int] | None) -> None:
        """A group's new values; None, or a count of zero: the group is gone."""
        with self._changed:
            if values is None or not values[0]:
                self.answer.pop(group, None)
            else:
                self.answer[group] = values
            if self.answer.get(group) == self._expected.get(group):
                self._wrong.discard(group)
                if not self._wrong:
                    self._changed.notify_all()
            else:
                self._wrong.add(group)

    def wait(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._wrong, PATIENCE):
                raise TimeoutError(f"{len(self._wrong)} groups are still wrong after {PATIENCE:.0f} s")
