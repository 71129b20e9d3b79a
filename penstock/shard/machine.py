"""The state of one shard as a process knows it, and the one way to change it: create the next record."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from penstock.errors import FencedError, ShardError
from penstock.shard.state import STATE, State
from penstock.shard.stores.place import Place

PATIENCE_SECONDS = 30.0
"""For so long a store that does not answer is asked again; then the call fails and says so."""

KEPT_RECORDS = 8
"""Older records are trimmed. They mean nothing any more; a few are left for those who look into them."""

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0
_RACES = 20
"""Somebody who lost fewer was only unlucky."""

T = TypeVar("T")

Change = Callable[[State, int], State | None]
"""Makes another state of one, given the number that it will have; None if there is nothing to change.

It is asked again about a newer state whenever somebody else was faster, and also after an attempt whose end
is not known: then it has to see by itself that it was done already.
"""


class Machine:
    """Reads and changes the state. Any thread may call it."""

    def __init__(self, place: Place, name: str, patience: float = PATIENCE_SECONDS) -> None:
        self.place = place
        self.name = name
        self._patience = patience
        self._lock = threading.RLock()
        self._state: State | None = None
        self.number = -1
        """Of the state that was read last."""

    def __str__(self) -> str:
        return f"the shard {self.name} in {self.place}"

    @property
    def state(self) -> State:
        """As it was read last."""
        assert self._state is not None, "the shard was opened"
        return self._state

    def refresh(self) -> State:
        """Read the newest state."""
        with self._lock:
            self.patiently(self._read)
            if self._state is None:
                raise ShardError(
                    f"there is no shard {self.name} in {self.place} yet; a writer has to make it first",
                    passing=True,
                )
            return self._state

    def create(self, first: State) -> None:
        """Make the shard, if nobody else has."""
        with self._lock:

            def attempt() -> None:
                self._read()
                if self._state is None:
                    self.place.log.create(self.name, 0, STATE.encode(first))
                    self._read()

            self.patiently(attempt)

    def update(self, change: Change) -> State:
        """Change the state, however often others are faster; returns the state that has it.

        What the change raises, or that it has nothing to do, is believed of the newest state only.
        """
        with self._lock:
            fresh = self._state is None
            if fresh:
                self.refresh()
            with self._bounded() as pause:
                while True:
                    try:
                        new = change(self.state, self.number + 1)
                    except (ShardError, FencedError):
                        if fresh:
                            raise
                        new = None
                    if new is None:
                        if fresh:
                            return self.state
                    else:
                        created, trouble = self._created(replace(new, by=secrets.token_hex(8)))
                        if created:
                            return self.state
                    self.refresh()  # before anything else: a state that is known to be old is of no use
                    fresh = True
                    if new is not None:
                        pause(trouble)
                        self.refresh()  # during a long pause others went on, and would be faster every time

    def trim(self) -> None:
        """Delete old records."""
        self.place.log.trim(self.name, self.number - KEPT_RECORDS)

    def _created(self, new: State) -> tuple[bool, ShardError | None]:
        """Whether this state is the newest now. If not, nobody knows yet whether it ever was."""
        log, number = self.place.log, self.number + 1
        try:
            if not log.create(self.name, number, STATE.encode(new)):
                return False, None
            if log.numbers(self.name, number):  # this one may have come so late that its place was trimmed
                return False, None
        except ShardError as error:
            if not error.passing:
                raise
            return False, error
        self._state, self.number = new, number
        return True, None

    def _read(self) -> None:
        log = self.place.log
        numbers = log.numbers(self.name, self.number - 1)  # trimming leaves the newest, so there is one
        if numbers and numbers[-1] == self.number:
            return
        data = log.read(self.name, numbers[-1]) if numbers else None
        found = log.newest(self.name) if data is None else (numbers[-1], data)
        if found is not None:
            state = STATE.parse(found[1], f"{self.place}/{self.name}, record {found[0]}")
            if self._state is not None and state.shard != self._state.shard:
                raise ShardError(f"{self} was deleted and made anew; open it again")
            if found[0] > self.number:
                self._state, self.number = state, found[0]  # in this order: who reads both has no older state
            if found[0] >= self.number:
                return
        if self._state is not None and log.read(self.name, self.number) is None:  # lists may lag behind
            raise ShardError(
                f"{self} is gone: record {self.number} is not there any more, and no later one. If the place"
                " is a disk that is not mounted, mount it, and all goes on. If it was deleted, restore it as"
                " it was; or stop all who use it, and begin with another place.",
                passing=True,
            )

    def patiently(self, act: Callable[[], T]) -> T:
        """Do something again while the store does not answer, for a while."""
        with self._bounded() as pause:
            while True:
                try:
                    return act()
                except ShardError as error:
                    if not error.passing:
                        raise
                    pause(error)

    @contextmanager
    def _bounded(self) -> Iterator[Callable[[ShardError | None], None]]:
        """A pause that grows, and that raises when time is over."""
        end = time.monotonic() + self._patience
        length = _FIRST_PAUSE
        races = 0

        def pause(error: ShardError | None) -> None:
            nonlocal length, races
            races += error is None
            if time.monotonic() + length > end and (error is not None or races > _RACES):
                if error is not None:
                    raise error
                raise ShardError(
                    f"{self}: others change it all the time, and nothing came of {self._patience:g} seconds"
                    " of attempts. Try again, or have fewer writers.",
                    passing=True,
                )
            time.sleep(length * (0.5 + secrets.randbelow(1000) / 1000))
            length = min(length * 2, _LONGEST_PAUSE)

        yield pause
