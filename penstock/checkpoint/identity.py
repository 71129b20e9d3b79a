"""Names of checkpoints that sort by the time at which they were taken."""

from __future__ import annotations

import re
import secrets
import time

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_id(after: str | None = None) -> str:
    """A UUID of version 7: milliseconds, then chance. It sorts behind `after`, whatever the clock says.

    >>> is_id(new_id()) and new_id(after="ffffffff-0000-7000-8000-000000000000") > "ffffffff-0000"
    True
    """
    milliseconds = time.time_ns() // 1_000_000
    if after is not None:
        milliseconds = max(milliseconds, int(after.replace("-", "")[:12], 16) + 1)
    value = milliseconds << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(3 << 62) | 2 << 62
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def is_id(text: str) -> bool:
    """Whether it is such a name."""
    return _ID.fullmatch(text) is not None
