"""What to tell a user when Spark fails in the middle of a transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import (
    DamagedError,
    EvaluationError,
    HostError,
    HostLostError,
    PenstockError,
    UnreachableError,
)

_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\][^\n]*")
_PLACE = re.compile(r"== SQL \(line (\d+), position (\d+)\) ==\n([^\n]*)\n( *)(\^+)")
_LOST = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect back)"
    r"|at org\.apache\.spark\.api\.python\.PythonWorkerFactory\."
    r"|java\.(?:io|net|nio\.channels)\.\w+Exception(?![^\n]*(?:No space|quota|Too many open))[^\n]*\n"
    r"(?:\s+at [^\n]*\n)*?\s+at org\.apache\.spark\.(?:sql\.execution|api)\.python\."
)
"""What Spark says when a Python worker, or the process that forks them, is gone."""
_CALLING = "An error occurred while calling"
_PYTHON = re.compile(r"^(?:penstock\.errors\.)?(\w+(?:Error|Exception)): ([^\n]*)", re.MULTILINE)


def evaluation_error(error: Exception, transaction: int, queries: Mapping[str, str]) -> PenstockError:
    """The reason that matters, out of Spark's stack traces; `queries` are those of the views.

    A source that a task could not reach is no fault of the transaction, and neither is a host.
    """
    text = str(error)
    found = _CONDITION.findall(text)
    python = _PYTHON.findall(text)
    if python and python[-1][0] == UnreachableError.__name__:
        return UnreachableError(python[-1][1])
    if (damage := damage_in(error)) is not None:
        return damage
    if (fault := host_error_in(error)) is not None:
        return fault
    if python and not any("DIVIDE" in condition for condition in found):
        reason = python[-1][1] or python[-1][0]
    elif found:
        reason = found[-1]
    else:
        reason = _first_line(text)
    reason = f"{_place(text, queries)}{reason.strip()}"
    if transaction == 0:
        return EvaluationError(
            f"the views cannot be computed before there are any rows: {reason} Correct the program.", reason
        )
    return EvaluationError(
        f"transaction {transaction} did not take effect: {reason} The views are as they were before it, and"
        " the pipeline is paused. Resume it to try again, or skip"
        f" transaction {transaction} to go on without it.",
        reason,
    )


def _first_line(text: str) -> str:
    """What a stack trace of the JVM begins with, without what py4j puts before it."""
    first, *others = text.strip().split("\n", 2)
    return others[0].removeprefix(": ") if others and first.startswith(_CALLING) else first


def lost_worker(error: BaseException) -> bool:
    """Whether Spark failed because a Python worker ended: killed by somebody, or for lack of memory."""
    return isinstance(error, Py4JJavaError | PySparkException) and _LOST.search(str(error)) is not None


def host_error_in(error: BaseException) -> HostError | None:
    """What a task says of a host, which cannot be reached or does not do what it must, if that is why Spark
    failed."""
    if isinstance(error, HostError):
        return error
    if not isinstance(error, Py4JJavaError | PySparkException):
        return None
    kinds = {kind.__name__: kind for kind in (HostError, HostLostError)}
    found = [kinds[name](text) for name, text in _PYTHON.findall(str(error)) if name in kinds]
    return found[-1] if found else None


def damage_in(error: Exception) -> DamagedError | None:
    """A damaged file that a task found, if that is why Spark failed."""
    found = [text for name, text in _PYTHON.findall(str(error)) if name == DamagedError.__name__]
    return DamagedError(found[-1]) if found else None


def _place(text: str, queries: Mapping[str, str]) -> str:
    """Which view has the expression that Spark points at, if that can be told."""
    for line, position, shown, indent, marks in _PLACE.findall(text):
        wrong = shown[len(indent) : len(indent) + len(marks)]
        start = int(position) - 1
        for view, query in queries.items():
            lines = query.splitlines()
            if int(line) <= len(lines) and lines[int(line) - 1].startswith(wrong, start):
                return f"in view {view}, at {wrong!r}: "
    return ""
