"""Blank runners with Spark already up: they compile programs, and a start takes one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.service.manager.processes import exit_reason
from penstock.service.manager.runner_client import RunnerClient, RunnerRefusedError, RunnerUnreachableError
from penstock.service.manager.runners import Runner, Runners
from penstock.service.workers import effective_workers

_log = logging.getLogger("penstock.manager")

_IDLE_SECONDS = 60.0
"""So long a blank runner that nobody asked to keep is left alone, for the next program to compile."""

_AFTER_TAKEN_SECONDS = 8.0
"""So long after one was taken the next is started: until then the pipeline that took it starts."""

_SOON_SECONDS = 10.0
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Spare:
    """What a blank runner says of itself."""

    rss_bytes: int
    is_warm: bool
    """Whether its Spark is up and tried out."""


class NoSpareError(Exception):
    """No blank runner came up in time."""


class Spares:
    """Tended by the supervisor; taken and lent by other threads."""

    def __init__(self, runners: Runners, client: RunnerClient, count: int, workers: int) -> None:
        self._runners = runners
        self._client = client
        self._count = count
        self._settings: dict[str, Any] = {"workers": effective_workers(workers), "spark": {}, "env": {}}
        self._blank: dict[str, Runner] = {}
        self._lent: set[str] = set()
        self._waiting = 0
        self._wanted_at = 0.0
        self._pause = 0.0
        self._not_before = 0.0
        self._changed = threading.Condition()
        self.last_failure: str | None = None
        """Why the last blank runner died; None as soon as one is up."""

    def tend(self) -> None:
        """Forget those that died, and start or end some so that there are as many as there should be."""
        with self._changed:
            blank = list(self._blank.values())
        for runner in blank:
            if not runner.is_alive:
                self._bury(runner)
            elif runner.endpoint() is not None:
                self.last_failure = None
        surplus: Runner | None = None
        with self._changed:
            missing = self._target() - len(self._blank)
            if missing < 0:
                free = [runner for runner in self._blank.values() if runner.id not in self._lent]
                if free:
                    surplus = self._blank.pop(free[0].id)
            self._changed.notify_all()
        if surplus is not None:
            self._runners.remove(surplus)
        if missing > 0 and time.monotonic() >= self._not_before:
            runner = self._runners.launch(self._settings)
            with self._changed:
                self._blank[runner.id] = runner

    def take(self, settings: Mapping[str, Any]) -> Runner | None:
        """A blank runner for a pipeline with these settings; it is not blank any more."""
        with self._changed:
            for runner in self._blank.values():
                if (
                    runner.id not in self._lent
                    and runner.settings == settings
                    and runner.is_alive
                    and runner.endpoint() is not None
                ):
                    self._not_before = time.monotonic() + _AFTER_TAKEN_SECONDS
                    return self._blank.pop(runner.id)
        return None

    @contextmanager
    def lent(self, seconds: float) -> Iterator[Runner]:
        """A blank runner for a while, to compile with."""
        runner = self._borrow(seconds)
        try:
            yield runner
        except RunnerRefusedError:
            raise
        except RunnerUnreachableError:
            with self._changed:
                self._blank.pop(runner.id, None)
            self._runners.remove(runner)  # it hangs, or died
            raise
        finally:
            with self._changed:
                self._lent.discard(runner.id)
                self._wanted_at = time.monotonic()
                self._changed.notify_all()

    def seen(self) -> list[Spare]:
        """Each blank runner that answers."""
        found = []
        with self._changed:
            blank = list(self._blank.values())
        for runner in blank:
            try:
                said = self._client.status(runner)
            except RunnerUnreachableError:
                continue
            found.append(Spare(int(said.get("rss_bytes") or 0), is_warm=bool(said.get("warm"))))
        return found

    def remove_all(self) -> None:
        """The service stops: nobody needs them."""
        with self._changed:
            blank = list(self._blank.values())
            self._blank = {}
        for runner in blank:
            self._runners.remove(runner)

    def _target(self) -> int:
        """How many there should be: those to keep, and one for whoever compiles."""
        recently = self._wanted_at and time.monotonic() - self._wanted_at < _IDLE_SECONDS
        return max(self._count, 1 if self._waiting or self._lent or recently else 0)

    def _borrow(self, seconds: float) -> Runner:
        deadline = time.monotonic() + seconds
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    for runner in self._blank.values():
                        if runner.id not in self._lent and runner.is_alive and runner.endpoint() is not None:
                            self._lent.add(runner.id)
                            self._pause = 0.0
                            return runner
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise NoSpareError(self.last_failure or "no process to compile with came up in time")
                    self._changed.wait(min(left, 0.2))
            finally:
                self._waiting -= 1

    def _bury(self, runner: Runner) -> None:
        lines = runner.last_lines()
        reason = exit_reason(runner.pid)
        self.last_failure = "\n".join([f"a spare runner {reason}", *lines])
        _log.warning("spare runner %s %s; its log ends with: %s", runner.id, reason, lines[-3:])
        if runner.age_seconds < _SOON_SECONDS:
            self._pause = min(_LONGEST_PAUSE, max(1.0, self._pause * 2))
        self._not_before = time.monotonic() + self._pause
        with self._changed:
            self._blank.pop(runner.id, None)
        self._runners.remove(runner)
