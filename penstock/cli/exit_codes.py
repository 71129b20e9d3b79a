"""What the end of a command says to a script. docs/reference/cli.md explains each."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    """Not possible in the state that it is in."""
    UNREACHABLE = 5
    NOT_ALLOWED = 6
    TIMEOUT = 7
    INTERRUPTED = 130
