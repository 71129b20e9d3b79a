"""Cutting a text file into ranges of whole records, without parsing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

_GROW = 1 << 20
"""How much more to read when a range holds no end of a record yet."""


@dataclass(frozen=True)
class Range:
    """Bytes `start` to `end` of a file, and how many lines they hold: about as many as records."""

    start: int
    end: int
    lines: int


def next_range(file: BinaryIO, start: int, want: int, *, quotes: bool, whole: bool) -> Range | None:
    """The next range of about `want` bytes that ends after a record; None if no record is complete.

    With `quotes` (CSV) a line break between quotes belongs to a cell: a record ends at a line break before
    which the number of quotes is even, since a quote inside a quoted cell is doubled. With `whole` the end
    of the file ends the last record, even without a line break.
    """
    file.seek(start)
    data = file.read(want)
    while data:
        cut = _last_end(data, quotes=quotes)
        if cut:
            return Range(start, start + cut, data.count(b"\n", 0, cut))
        more = file.read(max(_GROW, len(data)))
        if not more:
            return Range(start, start + len(data), data.count(b"\n") + 1) if whole else None
        data += more
    return None


def _last_end(data: bytes, *, quotes: bool) -> int:
    """Position after the last line break that ends a record; 0 if there is none."""
    at = data.rfind(b"\n")
    if not quotes:
        return at + 1
    odd = data.count(b'"', 0, at + 1) % 2
    while at >= 0 and odd:
        before = data.rfind(b"\n", 0, at)
        odd = (odd + data.count(b'"', before + 1, at)) % 2
        at = before
    return at + 1
