"""Check digits of card and book numbers, for whole arrays of ASCII characters: one row, one number.

There is at least one row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_ZERO = ord("0")


def _digits(numbers: Bytes) -> npt.NDArray[np.int64]:
    """Without spaces and dashes, which stand at the same place in every row."""
    first = numbers[:1]
    columns = np.flatnonzero((first >= _ZERO) & (first <= ord("9")))
    return numbers[:, columns].astype(np.int64) - _ZERO


def _weighted(numbers: Bytes, weights: list[int]) -> npt.NDArray[np.int64]:
    total: npt.NDArray[np.int64] = _digits(numbers) @ np.array(weights, dtype=np.int64)
    return total


def luhn(numbers: Bytes) -> Bytes:
    """The last digit of a card number: every second digit counts double, less 9 if that is above 9."""
    digits = _digits(numbers)
    digits[:, ::-2] *= 2
    digits[digits > 9] -= 9
    rest: npt.NDArray[np.int64] = -digits.sum(axis=1) % 10
    return (rest + _ZERO).astype(np.uint8)


def isbn13(numbers: Bytes) -> Bytes:
    """The last digit of an ISBN of 13 digits: the others count once and three times in turn."""
    return (-_weighted(numbers, [1, 3] * 6) % 10 + _ZERO).astype(np.uint8)


def isbn10(numbers: Bytes) -> Bytes:
    """The last character of an ISBN of 10 characters: a remainder of 11, with X for 10."""
    rest = -_weighted(numbers, list(range(10, 1, -1))) % 11
    return np.where(rest == 10, ord("X"), rest + _ZERO).astype(np.uint8)
