"""One file of the journal: records one after the other, each checked by itself.

    segment = magic, version, number of its first record, checksum of these
    record  = size, number, checksum of the payload, checksum of these; payload; end mark

Records are only ever appended, so a crash can leave no more than an incomplete last one: its bytes end too
soon, or are zeros where the disk had not written yet. That one never took effect and is cut off. Anything
else that does not fit was whole once and is damage, which is refused: cutting it off would lose what
somebody was told is safe. The end mark tells the two apart where the size alone cannot.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StorageError
from penstock.storage.disk import disk

VERSION = 2  # version 1 had a file for each transaction
MAGIC = b"PENSTOCK"

_HEADER = struct.Struct("<8sIQ")  # magic, version, first record
_RECORD = struct.Struct("<IQI")  # size of the payload, number, checksum of the payload
_CHECKSUM = struct.Struct("<I")
_END = b"\xeeEND"

HEADER_SIZE = _HEADER.size + _CHECKSUM.size
RECORD_SIZE = _RECORD.size + _CHECKSUM.size


@dataclass(frozen=True)
class Frame:
    """A record's number, its payload, and where in the segment the payload begins."""

    number: int
    payload: bytes
    offset: int


def header(first: int) -> bytes:
    """How a segment begins."""
    return _sealed(_HEADER.pack(MAGIC, VERSION, first))


def frame(number: int, payload: bytes) -> bytes:
    """A record as bytes."""
    return _sealed(_RECORD.pack(len(payload), number, zlib.crc32(payload))) + payload + _END


@dataclass(frozen=True)
class Segment:
    """A segment that was read: its records, and the size at which the last whole one ends."""

    path: Path
    first: int
    frames: list[Frame]
    whole: int
    size: int

    @property
    def torn(self) -> bool:
        return self.whole < self.size


def read_segment(path: Path) -> Segment:
    """All records of a segment; `StorageError` names the place of any damage."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}. {_ADVICE}") from error
    first = _read_header(path, content)
    frames = list(_frames(path, content, first))
    whole = HEADER_SIZE if not frames else frames[-1].offset + len(frames[-1].payload) + len(_END)
    return Segment(path, first, frames, whole, len(content))


def _read_header(path: Path, content: bytes) -> int:
    if len(content) < HEADER_SIZE:  # it was whole before it got its name
        raise StorageError(f"{path} is damaged at offset {len(content)}: its header ends there. {_ADVICE}")
    magic, version, first = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise StorageError(
            f"{path} is damaged at offset 0, or is not a journal: it begins with {magic!r}. {_ADVICE}"
        )
    if not _is_sealed(content[:HEADER_SIZE]):
        raise StorageError(f"{path} is damaged at offset 0: the checksum of its header is wrong. {_ADVICE}")
    if version != VERSION:
        raise StorageError(
            f"{path} has format version {version}; this Penstock reads version {VERSION}."
            " Use the version that wrote it."
        )
    number: int = first
    return number


def _frames(path: Path, content: bytes, number: int) -> Iterator[Frame]:
    at = HEADER_SIZE
    written = len(content.rstrip(b"\0"))
    while at + RECORD_SIZE <= len(content):
        head = content[at : at + RECORD_SIZE]
        if written <= at + RECORD_SIZE:
            return  # the file grew and nothing was written there, or not even the whole header
        if not _is_sealed(head):
            raise _damage(path, at, number, "the checksum of its header is wrong")
        size, found, checksum = _RECORD.unpack_from(head)
        if found != number:
            raise _damage(path, at, number, f"it says that it is record {found}")
        begin = at + RECORD_SIZE
        payload = content[begin : begin + size]
        end = content[begin + size : begin + size + len(_END)]
        if len(end) < len(_END):
            return  # the bytes end too soon
        if zlib.crc32(payload) != checksum or end != _END:
            last = begin + size + len(end) == len(content)
            if last and not any(end):
                return  # the end was not written yet
            raise _damage(path, at, number, "the checksum of its content is wrong")
        yield Frame(number, payload, begin)
        at = begin + size + len(_END)
        number += 1


def cut(segment: Segment) -> None:
    """Take an incomplete last record away."""
    with open(segment.path, "r+b") as file:
        file.truncate(segment.whole)
        disk().sync(file.fileno())


_ADVICE = "Restore it from a copy of the storage directory, or start with an empty one."


def _damage(path: Path, offset: int, number: int, what: str) -> StorageError:
    return StorageError(f"{path} is damaged at offset {offset}, record {number}: {what}. {_ADVICE}")


def _sealed(head: bytes) -> bytes:
    return head + _CHECKSUM.pack(zlib.crc32(head))


def _is_sealed(sealed: bytes) -> bool:
    return _sealed(sealed[: -_CHECKSUM.size]) == sealed
