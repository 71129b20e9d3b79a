"""Many objects at once, and how far that has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.sync.model import Piece

A = TypeVar("A")
B = TypeVar("B")


@dataclass
class Copied:
    """How far a copy has come, in files and bytes."""

    files: int = 0
    bytes: int = 0
    files_done: int = 0
    bytes_done: int = 0
    _adding: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def expect(self, pieces: Sequence[Piece]) -> None:
        """What there is to copy, beside what was said before."""
        self.files += len(pieces)
        self.bytes += sum(piece.content.bytes for piece in pieces)

    def add(self, piece: Piece) -> None:
        """One more is there."""
        with self._adding:
            self.files_done += 1
            self.bytes_done += piece.content.bytes

    def __str__(self) -> str:
        return f"{self.files_done:,} of {self.files:,} files, {self.bytes_done:,} of {self.bytes:,} bytes"


class Stop:
    """Ends copies that are under way: nothing further is begun."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether it was asked for."""
        return self._asked.is_set()

    def check(self) -> None:
        """Raise if it was asked for."""
        if self.asked:
            raise StateError("the pipeline was stopped while files were copied; what was copied is kept")


def each(act: Callable[[A], B], items: Sequence[A], threads: int, stop: Stop | None = None) -> list[B]:
    """What `act` makes of every item, several at once; after an error no further one is begun.

    >>> each(len, ["a", "bb"], 2)
    [1, 2]
    """

    def guarded(item: A) -> B:
        if stop is not None:
            stop.check()
        return act(item)

    with ThreadPoolExecutor(threads, "penstock copy") as pool:
        running = [pool.submit(guarded, item) for item in items]
        try:
            return [one.result() for one in running]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
