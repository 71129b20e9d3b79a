"""One immutable file of a trace: uncompressed Arrow, sorted by (_k, _r), memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.errors import DamagedError, StorageError
from penstock.storage.files import Content, Sink, write_file
from penstock.trace.files import refuse_damaged
from penstock.trace.rows import Index, Keys, Layout, Rows, Span, concat

FORMAT = b"1"
# Rows per record batch: large, so that one binary search serves most files; bounded, so that a
# merge holds a few of them in memory and not the whole trace.
SEGMENT_ROWS = 1 << 19


class Batch:
    """A batch file, mapped into memory; its pages are the operating system's to keep or drop.

    `expected` is what it must contain, if nobody has looked at it since it was restored.
    """

    def __init__(self, path: str, layout: Layout, expected: Content | None = None) -> None:
        try:
            if expected is not None:
                refuse_damaged(Path(path), expected)
            reader = pa.ipc.open_file(pa.memory_map(path))
            metadata = reader.schema.metadata or {}
        except (OSError, pa.ArrowException) as error:
            raise DamagedError(f"{path} cannot be read: {error}") from error
        if metadata.get(b"penstock.format") != FORMAT:
            found = metadata.get(b"penstock.format", b"none").decode(errors="replace")
            raise StorageError(
                f"batch file {path} has format version {found}; this Penstock reads version"
                f" {FORMAT.decode()}. Use the version that wrote it."
            )
        self.path = path
        self.layout = layout
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        self.segments = [Rows.from_batch(layout, batch) for batch in batches if batch.num_rows]
        self.rows = sum(len(segment) for segment in self.segments)

    @property
    def span(self) -> Span | None:
        """From its first key to its last; None without rows."""
        return Span(int(self.segments[0].k[0]), int(self.segments[-1].k[-1])) if self.segments else None

    def lookup(self, keys: Keys) -> list[Rows]:
        """The rows whose key is one of the sorted, distinct `keys`."""
        return [found for segment in self.segments if len(found := _lookup(segment, keys))]

    def between(self, low: int, high: int | None) -> list[Rows]:
        """The rows with low <= key < high (to the end if None)."""
        found = []
        for segment in self.segments:
            start = int(np.searchsorted(segment.k, low, "left"))
            stop = len(segment) if high is None else int(np.searchsorted(segment.k, high, "left"))
            if start < stop:
                found.append(segment.slice(start, stop))
        return found


def _lookup(segment: Rows, keys: Keys) -> Rows:
    first = np.searchsorted(keys, segment.k[0], "left")
    last = np.searchsorted(keys, segment.k[-1], "right")
    wanted = keys[first:last]  # none lies beyond the segment's last key, so `low` is always a position
    low = np.searchsorted(segment.k, wanted, "left")
    hit = segment.k[low] == wanted
    low = low[hit]
    count = np.searchsorted(segment.k, wanted[hit], "right") - low
    return segment.take(ranges(low, count))


def ranges(low: Index, count: Index) -> Index:
    """low[0], low[0]+1, ... (count[0] of them), low[1], ...

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    total = int(count.sum())
    before = np.cumsum(count) - count
    return np.repeat(low - before, count) + np.arange(total)


def write_batch(
    path: Path, layout: Layout, parts: Iterable[Rows], *, durable: bool = False
) -> tuple[int, int, str]:
    """Write consolidated rows, given in order; returns rows, bytes and checksum."""
    rows = 0

    def fill(file: Sink) -> None:
        nonlocal rows
        schema = layout.schema.with_metadata({b"penstock.format": FORMAT})
        with pa.ipc.new_file(file, schema) as writer:
            for part in parts:
                for start in range(0, len(part), SEGMENT_ROWS):
                    piece = part.slice(start, min(start + SEGMENT_ROWS, len(part)))
                    writer.write_batch(piece.to_batch())
                rows += len(part)

    path.parent.mkdir(parents=True, exist_ok=True)
    content = write_file(path, fill, durable=durable)
    return rows, content.bytes, content.checksum


def lookup(layout: Layout, batches: Sequence[Batch], keys: Keys) -> Rows:
    """The contents, over all batches, of the given sorted, distinct keys."""
    if len(keys) == 0:
        return Rows.empty(layout)
    found = [rows for batch in batches for rows in batch.lookup(keys)]
    return concat(layout, found).consolidated()


def scan(
    layout: Layout, batches: Sequence[Batch], low: int = -(2**63), high: int | None = None
) -> Iterator[Rows]:
    """The contents of a key range in key order, a bounded number of rows at a time."""
    for start, stop in _slices(batches, low, high):
        rows = concat(layout, [part for batch in batches for part in batch.between(start, stop)])
        if len(rows := rows.consolidated()):
            yield rows


def _slices(batches: Sequence[Batch], low: int, high: int | None) -> Iterator[tuple[int, int | None]]:
    """Cut [low, high) so that each piece holds about a segment's worth of rows."""
    total = sum(batch.rows for batch in batches)
    pieces = -(-total // SEGMENT_ROWS)
    if pieces <= 1:
        yield low, high
        return
    # Keys are hashes, so equal widths hold about equal numbers of rows; a key with very many rows
    # cannot be cut, which costs memory but never the result.
    end = 2**63 if high is None else high
    width = -(-(end - low) // pieces)
    cuts = [low + width * i for i in range(pieces)]
    for i, cut in enumerate(cuts):
        yield cut, cuts[i + 1] if i + 1 < pieces else high
