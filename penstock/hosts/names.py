"""Names of batches in a request: none leads out of the directory of batches, and none is another file's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.hosts.refusals import RefusalError
from penstock.trace.files import BATCH_NAME

_TRACE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def refuse_names(batches: Iterable[tuple[str, str]]) -> None:
    """`RefusalError` unless all are names of batches."""
    for trace, name in batches:
        match = BATCH_NAME.fullmatch(f"{name}.arrow")
        if not _TRACE_NAME.fullmatch(trace) or match is None or match[3]:
            raise RefusalError(400, "InvalidName", f"{trace!r}, {name!r} is no name of a batch")
