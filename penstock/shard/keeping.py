"""What keeps a shard small and its users known: signs of life, merging, clean-up.

Whoever has a shard open does this from time to time; if two do it at once, one of them does it in vain.

A lease is not measured by clocks that are compared. Who cleans up has to see, by its own clock, that a reader
or writer gave no sign of life for as long as the lease. That somebody is gone is a record of the log: no
append of a writer that is gone counts, however late it comes, so what it uploaded can be deleted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from penstock.errors import PenstockError
from penstock.failpoints import failpoint
from penstock.shard.reader import ShardReader
from penstock.shard.rows import consolidated, forwarded
from penstock.shard.shard import Shard
from penstock.shard.state import CLOSED, Batch, State
from penstock.shard.writer import ShardWriter, folder_of_parts, writer_of

_log = logging.getLogger("penstock")

FAN_IN = 8
"""So many batches of about one size become one."""

SMALLEST_ROWS = 4096
SMALLEST_BYTES = 64 << 10
MOST_ROWS = 2 << 20
MOST_BYTES = 16 << 20
"""Batches that have more together are not merged: it is done in memory, and a reader that lags reads whole
batches. The bytes are compressed, to a tenth or so of what they take then."""


class Keeper:
    """Of one shard, for the readers and the writer of one process."""

    def __init__(
        self,
        shard: Shard,
        writer: ShardWriter | None = None,
        readers: Sequence[ShardReader] = (),
        until: Callable[[], int] = lambda: CLOSED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`until`: the time that `since` does not move past, beside the readers. `clock`: what leases are
        measured by."""
        self.shard = shard
        self._until = until
        self._clock = clock
        self.writer = writer
        self.readers = list(readers)
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}
        self._looked = 0.0
        self._stopped = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the thread -----------------------------------------------------------------------------

    def start(self) -> None:
        """Do all of it every now and then, in a thread."""
        if self.writer is not None:
            self.writer.appended = self._wake.set
        name = f"shard {self.shard.machine.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        """Merge when there is enough to merge, and do the rest a few times in each lease."""
        due = time.monotonic()
        while not self._stopped:
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + self.shard.lease / 6
                    self.keep()
                elif self.writer is not None:
                    self.merge()
            except PenstockError as error:
                _log.warning("%s: %s", self.shard, error)
            except Exception:  # without signs of life, everything that is held here would be given up
                _log.exception("%s", self.shard)
            self._wake.wait(max(0.01, due - time.monotonic()))
            self._wake.clear()

    # -- what it does ---------------------------------------------------------------------------

    def keep(self) -> None:
        """Give a sign of life, then merge and clean up."""
        if self.writer is not None:
            self.writer.renew()
        self.beat()
        self.expel()
        if self.writer is not None and _is_live(self.shard.machine.state, self.writer.id):
            self.let_go()
            self.merge()
            self.clean()

    def beat(self) -> None:
        """Say that the readers and the writer live."""

        def change(state: State, number: int) -> State | None:
            new = state
            for reader in self.readers:
                if reader.id in state.readers:  # if not, it finds out when it reads
                    new = reader.beaten(new, number)
            writer = None if self.writer is None else state.writers.get(self.writer.id)
            if self.writer is not None and writer is not None and writer.live:
                writers = {**state.writers, self.writer.id: replace(writer, beat=writer.beat + 1)}
                new = replace(new, writers=writers)
            return None if new is state else new

        self.shard.machine.update(change)

    def expel(self) -> None:
        """Take those for gone that gave no sign of life for as long as the lease. A reader that is waited for
        longer keeps the times that it holds back."""
        silent, away = self._silent(self.shard.machine.refresh())
        if not silent and not away:
            return

        def change(state: State, number: int) -> State | None:
            new = state
            for kind, id_, beat in silent:
                if kind == "reader" and id_ in state.readers and state.readers[id_].beat == beat:
                    new = new.without_reader(id_)
                if kind == "writer" and id_ in state.writers and state.writers[id_].beat == beat:
                    new = new.without_writer(id_)
            for id_, beat in away:
                if id_ in new.readers and new.readers[id_].beat == beat:
                    new = new.with_reader_away(id_, number)
            return None if new is state else new

        self.shard.machine.update(change)
        if silent:
            _log.warning(
                "%s: %d readers and writers gave no sign of life and are gone", self.shard, len(silent)
            )

    def _silent(self, state: State) -> tuple[list[tuple[str, str, int]], list[tuple[str, int]]]:
        """Those who are gone, and the readers that are only away, each as it is known."""
        beats = {("reader", id_): reader.beat for id_, reader in state.readers.items()}
        beats |= {("writer", id_): writer.beat for id_, writer in state.writers.items() if writer.live}
        now = self._clock()
        if now - self._looked > max(self.shard.lease / 2, 1.0):
            self._seen = {}  # perhaps nobody could give a sign of life meanwhile, as little as this one
        self._looked = now
        self._seen = {
            who: self._seen[who] if who in self._seen and self._seen[who][0] == beat else (beat, now)
            for who, beat in beats.items()
        }
        leases = {("reader", id_): reader.lease for id_, reader in state.readers.items()}
        mute = [(who, beat, at) for who, (beat, at) in self._seen.items() if now - at >= self.shard.lease]
        gone = [(*who, beat) for who, beat, at in mute if now - at >= leases.get(who, 0.0)]
        away = [(who[1], beat) for who, beat, at in mute if now - at < leases.get(who, 0.0)]
        return gone, away

    # -- merging --------------------------------------------------------------------------------

    def let_go(self) -> None:
        """Move `since` on as far as readers permit: what is before it need not be told apart any more."""
        until = self._until()

        def change(state: State, _: int) -> State | None:
            time = min(state.held, until)
            return state.with_since(time) if time > state.since else None

        self.shard.machine.update(change)

    def merge(self) -> None:
        """Merge what has gathered."""
        while run := to_merge(self.shard.machine.state.batches):
            if not self._merged(run):
                return

    def _merged(self, run: Sequence[Batch]) -> bool:
        assert self.writer is not None, "only writers merge"
        since = self.shard.machine.state.since
        rows = self.shard.rows_of(run)
        return rows is not None and self.writer.merge(run, consolidated(forwarded(rows, since)))

    # -- clean-up -------------------------------------------------------------------------------

    def clean(self) -> None:
        """Delete what no batch has and nobody may read: what was merged, and what was uploaded in vain."""
        machine = self.shard.machine
        blobs = machine.place.blobs
        keys = blobs.keys(folder_of_parts(self.shard))  # before the state is read: newer ones are not in it
        state = machine.refresh()
        orphans = [
            key
            for key in keys
            if key not in state.keys and key not in state.dropped and not _is_live(state, writer_of(key))
        ]
        blobs.delete(orphans)
        if gone := state.deletable():
            blobs.delete(sorted(gone))
            failpoint("shard.deleted")
            machine.update(lambda state, _: state.forgotten(gone) if gone & state.dropped.keys() else None)
        machine.trim()


def _is_live(state: State, writer: str) -> bool:
    return writer in state.writers and state.writers[writer].live


def to_merge(batches: Sequence[Batch]) -> Sequence[Batch]:
    """Batches that follow each other and are to become one: the smallest that have gathered.

    >>> from penstock.shard.state import Content, Part
    >>> def batches(*rows: int, each: int = 10) -> list[Batch]:
    ...     return [Batch(i, i + 1, (Part("", Content(n * each, ""), n),)) for i, n in enumerate(rows)]
    >>> [batch.rows for batch in to_merge(batches(90000, 1, 1, 1, 1, 1, 1, 1, 1))]
    [1, 1, 1, 1, 1, 1, 1, 1]
    >>> to_merge(batches(90000, 1, 1))
    []
    >>> [batch.rows for batch in to_merge(batches(9, 1, 1, 1, 1, 1, 1, 1, 1, each=1 << 20))]
    [1, 1, 1, 1, 1, 1, 1, 1]
    >>> to_merge(batches(3, 3, 3, 3, 3, 3, 3, 3, each=1 << 20))
    []

    An empty one at the end grows with idle time: a merge of it would come too late whenever it is slow.

    >>> len(to_merge([*batches(1, 1, 1, 1, 1, 1, 1, 1), Batch(8, 9)]))
    8
    """
    if batches and not batches[-1].parts:
        batches = batches[:-1]
    for size in range(20):
        for run in _runs(batches, size):
            if fitting := _fitting(run):
                return fitting
    return []


def _runs(batches: Sequence[Batch], size: int) -> Iterator[Sequence[Batch]]:
    """Those that follow each other and are of no larger size, where enough have gathered."""
    for small, found in groupby(batches, lambda batch: _class(batch) <= size):
        run = list(found)
        if small and len(run) >= FAN_IN:
            yield run


def _fitting(run: Sequence[Batch]) -> Sequence[Batch]:
    """The last of a run that can be merged in memory, if they are enough."""
    first, rows, size = len(run), 0, 0
    for batch in reversed(run):
        rows, size = rows + batch.rows, size + batch.bytes
        if rows > MOST_ROWS or size > MOST_BYTES:
            break
        first -= 1
    return run[first:] if len(run) - first >= FAN_IN else []


def _class(batch: Batch) -> int:
    rows, size, found = batch.rows, batch.bytes, 0
    while rows > SMALLEST_ROWS or size > SMALLEST_BYTES:
        rows, size, found = rows // FAN_IN, size // FAN_IN, found + 1
    return found
