"""Row indices to whole numbers: counted in steps, or picked and multiplied.

All of it is arithmetic on 64-bit words that wraps around and comes out right, because the results fit. Where
they do not, as for a DECIMAL of more than 18 digits, the arrays hold Python's integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.connectors.input.datagen.chance import ALL, Words

Numbers = Callable[[Words], Any]

_INT64 = range(-(2**63), 2**63)


def counted(low: int, high: int, step: int) -> Numbers:
    """`low`, `low + step` ... starting over when `high` is reached; backwards if the step is negative.

    >>> counted(10, 13, 2)(np.arange(4, dtype=np.uint64)).tolist()
    [10, 12, 11, 10]
    """
    size = high - low
    forward = abs(step) % size
    short = low in _INT64 and high - 1 in _INT64

    def words_away(rows: Words) -> Words:
        far = rows * np.uint64(forward)
        if size < ALL:
            far = far % np.uint64(size)
        return far if step >= 0 else np.where(far == 0, far, np.uint64(size % ALL) - far)

    def numbers(rows: Words) -> Any:
        if short and int(rows.max(initial=0)) * forward < ALL:
            return words_away(rows).astype(np.int64) + np.int64(low)
        far = rows.astype(object) * (forward if step >= 0 else -forward) % size + low
        return far.astype(np.int64) if short else far

    return numbers


def scaled(pick: Numbers, low: int, high: int, scale: int) -> Numbers:
    """Picked numbers from `low` to `high - 1`, multiplied; `pick` gives their distance from `low`."""
    ends = (low, high - 1, scale, low * scale, (high - 1) * scale)
    if all(number in _INT64 for number in ends):
        return lambda rows: (pick(rows).astype(np.int64) + np.int64(low)) * np.int64(scale)
    return lambda rows: (pick(rows).astype(object) + low) * scale
