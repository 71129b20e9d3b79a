"""Append to a shard: what counts is decided by comparing the upper, and every append counts once.

An object is uploaded before the record that names it is created. If nobody knows whether that record was
created, nobody may delete the object yet: the store may still carry it out. As soon as another record has its
number, everything is known.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import LeaseExpiredError, ShardError
from penstock.failpoints import failpoint
from penstock.shard import parts
from penstock.shard.rows import TIME, changes_hash, consolidated, schema_with_time
from penstock.shard.shard import Shard
from penstock.shard.state import Batch, Fence, Part, State, refuse_bounds

LONG_UPLOAD = 8 << 20
"""Bytes that may take longer than signs of life can wait."""


@dataclass(frozen=True)
class Outcome:
    """What became of an append."""

    appended: bool
    """Whether the batch is in the shard. If not, the shard's upper was another one."""
    upper: int
    """The shard's upper now."""
    diverged: bool = False
    """Whether somebody else appended other changes with the same bounds."""


@dataclass(frozen=True)
class Attempt:
    """An append that was begun: the same one when it is asked for again, until its end is known."""

    token: str
    batch: Batch
    hash: str
    waiting: dict[str, bytes] = field(compare=False)
    """What has to be uploaded yet."""

    @property
    def size(self) -> int:
        """How many bytes that is."""
        return sum(map(len, self.waiting.values()))


class ShardWriter:
    """One of perhaps several writers. One thread appends, and one may merge."""

    def __init__(self, shard: Shard, purpose: str, fence: Fence | None = None) -> None:
        self.shard = shard
        self.appended: Callable[[], None] = lambda: None
        """Called when something was appended."""
        self._purpose = purpose
        self._fence = fence or Fence()
        self._unsure: Attempt | None = None
        self._appending = threading.Lock()
        self._closed = False
        self._lock = threading.Lock()
        self._given_up: dict[str, int] = {}
        """Objects that are perhaps of no use, each with the number after which that is known."""
        self._register()

    def _register(self) -> None:
        """Become known, before anything is uploaded: what unknown writers left is cleaned up."""
        self.id = secrets.token_hex(8)
        self._count = count()

        def change(state: State, _: int) -> State | None:
            state.refuse_fenced(self._fence)
            return None if self.id in state.writers else state.with_writer(self.id, self._purpose)

        self.shard.machine.update(change)

    def renew(self) -> None:
        """Become known again, if others took this one for gone and nothing is under way."""
        if not self._appending.acquire(blocking=False):
            return
        try:
            writer = self.shard.machine.refresh().writers.get(self.id)
            if self._unsure is None and (writer is None or not writer.live) and not self._closed:
                self._register()
        finally:
            self._appending.release()

    # -- appending ------------------------------------------------------------------------------

    def compare_and_append(self, changes: pa.Table | None, expected_upper: int, new_upper: int) -> Outcome:
        """Append changes at times from `expected_upper` to before `new_upper`, if that is where it ends.

        None for no changes: only the upper moves on. After a `ShardError` that is `passing` nobody knows
        whether it counted; the same call again finds out, and does not count twice. `BoundsError`: no
        shard could take it. `FencedError`: another generation of writers took over.
        """
        with self._appending:
            attempt = self._prepared(changes, expected_upper, new_upper)
            try:
                return self._appended(attempt)
            except LeaseExpiredError:
                if self._counted(self.shard.machine.state, attempt):  # it was gone only afterwards
                    return self._done(attempt)
                self._unsure = None
                self._register()
                return self._appended(self._prepared(changes, expected_upper, new_upper))

    def ask(self) -> None:
        """Ask the others to let this one append next; what it appends takes that back."""

        def change(state: State, _: int) -> State | None:
            writer = state.writers.get(self.id)
            if writer is None or not writer.live or writer.asks == state.upper:
                return None
            return replace(state, writers={**state.writers, self.id: replace(writer, asks=state.upper)})

        self.shard.machine.update(change)

    def hash_of(self, changes: pa.Table) -> str:
        """The hash that an append of these changes has."""
        return changes_hash(self._fitted(changes))

    def _fitted(self, changes: pa.Table | None) -> pa.Table:
        schema = schema_with_time(self.shard.schema)
        return consolidated(
            schema.empty_table() if changes is None else changes.select(schema.names).cast(schema)
        )

    def _prepared(self, changes: pa.Table | None, lower: int, upper: int) -> Attempt:
        """The attempt that was begun with these changes, or a new one."""
        table = self._fitted(changes)
        times = pc.min_max(table.column(TIME)).as_py()
        refuse_bounds(lower, upper, times["min"], times["max"])
        hash_ = changes_hash(table)
        before = self._unsure
        if before is not None:
            if (before.hash, before.batch.lower, before.batch.upper) == (hash_, lower, upper):
                return before
            self._give_up(before.batch, known=False)
        waiting = self.encoded(table, self.id)
        batch = Batch(lower, upper, tuple(part for part, _ in waiting))
        return Attempt(secrets.token_hex(8), batch, hash_, {part.key: data for part, data in waiting})

    def _appended(self, attempt: Attempt) -> Outcome:
        machine, batch = self.shard.machine, attempt.batch
        self._unsure = attempt

        def is_due(state: State) -> bool:
            if self._counted(state, attempt):
                return False
            state.refuse_fenced(self._fence)
            state.writer(self.id)
            return state.upper == batch.lower

        def change(state: State, _: int) -> State | None:
            if not is_due(state):
                return None
            self._upload(attempt)
            return state.appended(self.id, attempt.token, batch, attempt.hash)

        # A long upload must not keep the signs of life waiting, which need the machine as `update` does.
        if attempt.size > LONG_UPLOAD and is_due(machine.refresh()):
            self._upload(attempt)
        machine.update(change)
        return self._done(attempt)

    def _upload(self, attempt: Attempt) -> None:
        for key, data in list(attempt.waiting.items()):
            self.shard.put(key, data)
            del attempt.waiting[key]
        failpoint("shard.uploaded", self.shard.machine.name)

    def _counted(self, state: State, attempt: Attempt) -> bool:
        writer = state.writers.get(self.id)
        return writer is not None and writer.token == attempt.token

    def _done(self, attempt: Attempt) -> Outcome:
        """Its end is known: what it uploaded is in the shard, or of no use."""
        state = self.shard.machine.state
        counted = self._counted(state, attempt)
        self._unsure = None
        if counted:
            failpoint("shard.appended", self.shard.machine.name)
            self.appended()
        else:
            self._give_up(attempt.batch, known=True)
        self.settle()
        theirs = state.hash_of(attempt.batch.lower, attempt.batch.upper)
        return Outcome(counted, state.upper, theirs not in (None, attempt.hash))

    # -- merging --------------------------------------------------------------------------------

    def merge(self, run: Sequence[Batch], table: pa.Table) -> bool:
        """Put one batch with these changes in place of several; False if they are not there any more."""
        id_ = (
            self.id
        )  # an append may register anew meanwhile, and what this one put is then anybody's to delete
        found = self.encoded(table, id_)
        new = Batch(run[0].lower, run[-1].upper, tuple(part for part, _ in found))

        def change(state: State, number: int) -> State | None:
            state.writer(id_)
            return None if new in state.batches else state.merged(run, new, number)

        try:
            for part, data in found:
                self.shard.put(part.key, data)
            failpoint("shard.merged")
            state = self.shard.machine.update(change)
        except BaseException:
            self._give_up(new, known=False)
            raise
        if new not in state.batches:
            self._give_up(new, known=True)
        self.settle()
        return new in state.batches

    # -- objects --------------------------------------------------------------------------------

    def encoded(self, table: pa.Table, id_: str) -> list[tuple[Part, bytes]]:
        """The parts that changes become, under keys that tell who put them; nothing is uploaded yet."""
        found = []
        for start in range(0, table.num_rows, parts.MAX_ROWS):
            piece = table.slice(start, parts.MAX_ROWS)
            data, content = parts.encode(piece)
            key = f"{folder_of_parts(self.shard)}/{id_}-{next(self._count):08}.arrow"
            found.append((Part(key, content, piece.num_rows), data))
        return found

    def _give_up(self, batch: Batch, *, known: bool) -> None:
        """A batch is not in the shard; or it is not `known` yet, until there is a newer record."""
        number = self.shard.machine.number - known
        with self._lock:
            self._given_up.update({part.key: number for part in batch.parts})

    def settle(self) -> None:
        """Delete what was uploaded in vain, as far as that is known."""
        with self._lock:
            number, state = self.shard.machine.number, self.shard.machine.state
            known = [key for key, given_up in self._given_up.items() if given_up < number]
            garbage = [key for key in known if key not in state.keys and key not in state.dropped]
            try:
                self.shard.machine.place.blobs.delete(garbage)
            except ShardError:
                return  # the next time; and whoever cleans up finds it
            for key in known:
                del self._given_up[key]

    def close(self) -> None:
        """Be gone: others need not wait to find out."""
        self._closed = True
        if self._unsure is not None:
            self._give_up(self._unsure.batch, known=False)

        def change(state: State, _: int) -> State | None:
            writer = state.writers.get(self.id)
            return state.without_writer(self.id) if writer is not None and writer.live else None

        self.shard.machine.update(change)
        self.settle()


def folder_of_parts(shard: Shard) -> str:
    """Where the objects of a shard lie."""
    return f"{shard.machine.name}/parts"


def writer_of(key: str) -> str:
    """Who put an object.

    >>> writer_of("orders/parts/00c0ffee-00000017.arrow")
    '00c0ffee'
    """
    return key.rpartition("/")[2].partition("-")[0]
