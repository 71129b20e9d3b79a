"""What to tell a user when Spark fails in the middle of a transaction."""

from __future__ import annotations

import re

from penstock.errors import EvaluationError

_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\][^\n]*")
_PYTHON = re.compile(r"^(?:penstock\.errors\.)?(\w+(?:Error|Exception)): ([^\n]*)", re.MULTILINE)


def evaluation_error(error: Exception, transaction: int) -> EvaluationError:
    """The reason that matters, out of Spark's stack traces."""
    text = str(error)
    found = _CONDITION.findall(text)
    python = _PYTHON.findall(text)
    if python and not any("DIVIDE" in condition for condition in found):
        reason = python[-1][1] or python[-1][0]
    elif found:
        reason = found[-1]
    else:
        reason = text.strip().split("\n", 1)[0]
    return EvaluationError(
        f"transaction {transaction} did not take effect: {reason.strip()}"
        " The views are as they were before it; correct the rows or the view, and send the rows again."
    )
