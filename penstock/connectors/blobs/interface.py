"""What a format needs to know of the place its bytes come from."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, ClassVar, cast


class Blob(ABC):
    """Named bytes that do not change, except that a local file may grow."""

    source: ClassVar[str]
    """Registry name of the reader that finds it again."""

    label: str
    """Its name, for people."""

    whole: bool = False
    """Whether a part costs as much as all of it, so that it is better read by one task."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """What finds the same bytes again, in another process: plain JSON without secrets."""

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def open(self) -> BinaryIO:
        """The bytes as a file that can seek. Reading it notices if they are not those of `identity`."""


class RangeFile(io.RawIOBase):
    """A file over a function that gives a range of bytes; each read is one call."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._position + len(view), self._size)
        if end <= self._position:
            return 0
        data = self._fetch(self._position, end)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        """One call for all the rest, where the base class would ask for small pieces."""
        return self.read(max(self._size - self._position, 0)) or b""


def range_file(size: int, fetch: Callable[[int, int], bytes]) -> BinaryIO:
    """`RangeFile` as the type that files have."""
    return cast(BinaryIO, RangeFile(size, fetch))
