"""Durations and sizes as people write them: `1h30m`, `500ms`, `4Gi`, `16GB`."""

from __future__ import annotations

import re
from decimal import Decimal

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_BYTES = {"": 1} | {
    prefix + binary: (1024 if binary else 1000) ** power
    for power, prefix in enumerate("kMGTPE", start=1)
    for binary in ("", "i")
}
_BYTES |= {"K": 1000, "Ki": 1024}

_TERM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([a-zµμ]+)")
_SIZE = re.compile(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([A-Za-z]*)")
_LARGEST = 2**63 - 1


def duration(text: str, unit: str) -> int:
    """A duration in whole units, rounded up.

    >>> duration("1h30m", "s"), duration("1.5ms", "us")
    (5400, 1500)
    """
    total = Decimal(0)
    position = 0
    plain = text.replace("μ", "µ")
    for term in _TERM.finditer(plain):
        if term.start() != position or term[2] not in _NANOSECONDS:
            break
        total += Decimal(term[1]) * _NANOSECONDS[term[2]]
        position = term.end()
    if position == 0 or position != len(plain):
        raise ValueError(f"{text!r} is no duration such as '500ms', '30s' or '1h30m'")
    return _whole(total, _NANOSECONDS[unit], text)


def size(text: str, unit: str) -> int:
    """A size in whole units, rounded up; a number alone counts bytes.

    >>> size("4Gi", "M"), size("4096", "")
    (4295, 4096)
    """
    found = _SIZE.fullmatch(text)
    name = "" if found is None else found[2].removesuffix("B")
    if found is None or name not in _BYTES:
        raise ValueError(f"{text!r} is no size such as '16G', '4Gi' or '4096'")
    if not name and unit:
        raise ValueError(f"{text!r} has no unit: write a size such as '{text}{unit}'")
    return _whole(Decimal(found[1]) * _BYTES[name], _BYTES[unit], text)


def _whole(total: Decimal, unit: int, text: str) -> int:
    units = -(-int(total.to_integral_value(rounding="ROUND_CEILING")) // unit)
    if units > _LARGEST:
        raise ValueError(f"{text!r} is too large")
    return units
