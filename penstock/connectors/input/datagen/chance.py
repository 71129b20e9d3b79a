"""Random numbers by row: a pure function of a stream's key and the row's index, for whole arrays.

A generator with a state would give other values when rows are split differently. Here every value
is looked up by its index (SplitMix64 in counter mode), so any task can make any range of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
"""Indices of rows, and random 64-bit words."""

Floats = npt.NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

ALL = 1 << 64
"""Number of 64-bit words."""


@dataclass(frozen=True)
class Origin:
    """What the random streams of all fields of one plan have in common."""

    seed: int
    table: str
    plan: int

    def stream(self, path: str) -> np.uint64:
        """The key of the stream of random words of one field."""
        content = f"{self.seed}/{self.table.lower()}/{self.plan}/{path}"
        digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
        return np.uint64(int.from_bytes(digest, "little"))


def words(key: np.uint64, index: Words) -> Words:
    """The stream's random word at each index."""
    z = key + (index + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def below(random: Words, limit: int) -> Words:
    """Each word as a number from 0 to `limit - 1`, all equally likely: the high half of word x limit."""
    if limit == ALL:
        return random
    n = np.uint64(limit)
    if limit <= _LOW_32:
        short: Words = ((random >> _32) * n + (((random & _LOW_32) * n) >> _32)) >> _32
        return short
    n_high, n_low = n >> _32, n & _LOW_32
    high, low = random >> _32, random & _LOW_32
    cross = high * n_low + ((low * n_low) >> _32)
    cross_2 = low * n_high + (cross & _LOW_32)
    product: Words = high * n_high + (cross >> _32) + (cross_2 >> _32)
    return product


def wide_below(high: Words, low: Words, limit: int) -> npt.NDArray[np.object_]:
    """The same for a `limit` above 64 bits, from two words each; Python's integers in an array."""
    random = (high.astype(object) << 64) | low.astype(object)
    chosen: npt.NDArray[np.object_] = (random * limit) >> 128
    return chosen


def unit(random: Words) -> Floats:
    """Each word as a float in [0, 1)."""
    return (random >> np.uint64(11)).astype(np.float64) * 2.0**-53


_HEAD = 1 << 14


def zipf(limit: int, exponent: float) -> Callable[[Words], Words]:
    """Words to ranks 0 to `limit - 1`, rank k with a weight of (k + 1) ** -exponent.

    The first ranks are exact; the tail of a long range follows the integral of the weights.
    """
    limit = min(limit, 1 << 53)
    head = min(limit, _HEAD)
    cumulative = np.cumsum(np.arange(1, head + 1, dtype=np.float64) ** -exponent)
    start, end, power = head + 0.5, limit + 0.5, 1.0 - exponent
    flat = abs(power) < 1e-12
    tail = 0.0
    if limit > head:
        tail = float(np.log(end / start)) if flat else (end**power - start**power) / power
    total = float(cumulative[-1]) + tail

    def ranks(random: Words) -> Words:
        at = unit(random) * total
        found = np.searchsorted(cumulative, at, side="right").astype(np.float64)
        beyond = at >= cumulative[-1]
        if tail and beyond.any():
            part = at[beyond] - cumulative[-1]
            x = start * np.exp(part) if flat else (start**power + part * power) ** (1.0 / power)
            found[beyond] = np.floor(x + 0.5) - 1
        return np.clip(found, 0, limit - 1).astype(np.uint64)

    return ranks
