"""What a host has seen of its run: a task of an earlier program or transaction is too late, and refused.

Programs are counted from the start of a run, for one run may replay with an old program before it goes on
with a new one. What was seen is in a file, which all Python workers of the host share.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from penstock.errors import HostError

SEEN_FILE = "seen.json"

NO_TRANSACTION = -1
"""Of tasks that answer queries or merge batches."""


@dataclass(frozen=True)
class Seen:
    """The latest of a run."""

    incarnation: str
    number: int = 0
    """Of the program, from 1."""
    program: str = ""
    """Its fingerprint."""
    transaction: int = NO_TRANSACTION

    @classmethod
    def of(cls, facts: Mapping[str, Any], transaction: int) -> Seen:
        """What the driver says."""
        number, program = facts["program"]
        return cls(facts["incarnation"], number, program, transaction)

    def refuse(self, given: Seen) -> str | None:
        """Why this is not to be done any more; None if it is."""
        if given.incarnation != self.incarnation:
            return f"a task is of incarnation {given.incarnation}, and it is of {self.incarnation} by now"
        own, other = f"program {self.number} ({self.program})", f"program {given.number} ({given.program})"
        if given.number < self.number or (given.number == self.number and given.program != self.program):
            return f"a task is of {other} of this run, and it runs {own}"
        if given.number == self.number and NO_TRANSACTION < given.transaction < self.transaction:
            return f"a task is of transaction {given.transaction}, and it has seen one of {self.transaction}"
        return None

    def with_(self, given: Seen) -> Seen:
        """And what is given with it, which is not refused."""
        if given.number > self.number:
            return given
        return replace(self, transaction=max(self.transaction, given.transaction))


def begin(directory: Path, incarnation: str) -> None:
    """The host belongs to this run from now on."""
    with _held(directory) as file:
        before = _read(file)
        if before is None or before.incarnation != incarnation:
            _write(file, Seen(incarnation))


def admit(directory: Path, index: int, given: Seen) -> None:
    """`HostError` if a task comes too late on the host with this directory."""
    with _held(directory) as file:
        before = _read(file) or Seen(given.incarnation)
        if (why := before.refuse(given)) is not None:
            raise HostError(f"host {index}: {why}; nothing was done", host=index)
        if (after := before.with_(given)) != before:
            _write(file, after)


@contextmanager
def _held(directory: Path) -> Iterator[TextIO]:
    descriptor = os.open(directory / SEEN_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _read(file: TextIO) -> Seen | None:
    """None also if whoever wrote it was killed: it is not worth more than that."""
    try:
        return Seen(**json.load(file))
    except (ValueError, TypeError):
        return None


def _write(file: TextIO, seen: Seen) -> None:
    file.seek(0)
    file.truncate()
    json.dump(asdict(seen), file)
