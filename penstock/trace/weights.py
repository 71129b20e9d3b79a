"""Weights that add exactly: 64-bit integers, and 128-bit decimals as four 32-bit limbs.

In memory a weight column is an int64 array of shape (n,), or (n, 4) for a decimal: limbs from
low to high, the highest signed. Sums of limbs cannot overflow an int64 before 2**31 rows, so a
group is summed first and its carries are settled once at the end.

>>> import pyarrow as pa, decimal
>>> w = decode(pa.array([decimal.Decimal("1.50"), decimal.Decimal("-4.25")], pa.decimal128(38, 2)))
>>> encode(total(w, np.array([0])), pa.decimal128(38, 2)).to_pylist()
[Decimal('-2.75')]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Weight = npt.NDArray[np.int64]

_LIMBS = 4
_BITS = 32
_MASK = (1 << _BITS) - 1


def decode(array: pa.Array) -> Weight:
    """An Arrow column without NULLs, as a weight."""
    if pa.types.is_decimal128(array.type):
        size = array.type.byte_width
        start = array.offset * size
        raw = np.frombuffer(array.buffers()[1], np.uint32, len(array) * _LIMBS, start).reshape(-1, _LIMBS)
        limbs = raw.astype(np.int64)
        limbs[:, -1] = raw[:, -1].view(np.int32)
        return limbs
    plain: Weight = array.to_numpy(zero_copy_only=True)
    return plain


def encode(weight: Weight, type_: pa.DataType) -> pa.Array:
    """A weight as an Arrow column."""
    if pa.types.is_decimal128(type_):
        buffer = pa.py_buffer(np.ascontiguousarray(weight.astype(np.uint32)))
        return pa.Array.from_buffers(type_, len(weight), [None, buffer])
    return pa.array(weight, type_)


def total(weight: Weight, starts: npt.NDArray[np.intp]) -> Weight:
    """The sum of each run of rows that begins at one of `starts`."""
    return _carry(np.add.reduceat(weight, starts, axis=0))


def add(a: Weight, b: Weight) -> Weight:
    """Row by row."""
    return _carry(a + b)


def nonzero(weight: Weight) -> npt.NDArray[np.bool_]:
    """Which rows are not zero."""
    there: npt.NDArray[np.bool_] = weight != 0 if weight.ndim == 1 else (weight != 0).any(axis=1)
    return there


def zeros(rows: int, type_: pa.DataType) -> Weight:
    """As many zeros."""
    return np.zeros((rows, _LIMBS) if pa.types.is_decimal128(type_) else rows, np.int64)


def _carry(weight: Weight) -> Weight:
    if weight.ndim == 1:
        return weight
    for limb in range(_LIMBS - 1):
        weight[:, limb + 1] += weight[:, limb] >> _BITS
        weight[:, limb] &= _MASK
    return weight
