"""What of a column can be converted, when not all of it can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from penstock.connectors.misfit import MISFITS, BadValueError


class Slices(Protocol):
    """A column before its conversion: a list or an Arrow array."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Self: ...


S = TypeVar("S", bound=Slices)


@dataclass(frozen=True)
class Salvaged:
    """A converted column, NULL where a value does not fit, and what was wrong with those values."""

    array: pa.Array
    bad: Mapping[int, Exception]


def salvage(column: S, kind: pa.DataType, convert: Callable[[S], pa.Array]) -> Salvaged:
    """Convert the column as a whole if that works, otherwise by halves, down to the values that do not fit.

    So that a column without bad values costs what `convert` costs, and is converted by the same code.

    >>> found = salvage(["1", "x"], pa.int64(), lambda part: pa.array([int(text) for text in part]))
    >>> found.array.to_pylist(), list(found.bad)
    ([1, None], [1])
    """
    bad: dict[int, Exception] = {}
    pieces: list[pa.Array] = []
    waiting = [(0, len(column))]
    while waiting:
        start, end = waiting.pop()
        try:
            pieces.append(convert(column[start:end]))
        except (BadValueError, *MISFITS) as error:
            if end - start <= 1:
                bad[start] = error
                pieces.append(pa.nulls(end - start, kind))
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
    return Salvaged(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces), bad)
