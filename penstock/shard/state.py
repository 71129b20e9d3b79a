"""What a shard is at one moment: a value, and what may be made of it. No I/O here.

Every record of the log holds the whole state, so the newest one is all that anybody has to read.

    since <= times that can be read < upper

Times are transaction numbers. `CLOSED` as the upper says that nothing will ever be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import BoundsError, FencedError, LeaseExpiredError, TimeGoneError
from penstock.storage.document import Document
from penstock.storage.files import Content

CLOSED = (1 << 63) - 1
"""The upper of a shard that is complete."""

NO_CHANGES = "0" * 32
"""The hash of no changes."""

MAX_RECENT = 128
"""The hashes of so many appends are kept."""

MAX_GONE = 64
"""So many writers that are gone are remembered, by the token of the last thing that they did."""


@dataclass(frozen=True)
class Part:
    """An object with rows of a batch."""

    key: str
    content: Content
    rows: int


@dataclass(frozen=True)
class Batch:
    """Changes at times from `lower` to before `upper`."""

    lower: int
    upper: int
    parts: tuple[Part, ...] = ()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.content.bytes for part in self.parts)


@dataclass(frozen=True)
class Appended:
    """What one append brought: the hash of its changes, whatever their order."""

    lower: int
    upper: int
    hash: str


@dataclass(frozen=True)
class Writer:
    """Somebody who may append."""

    purpose: str
    """Who it is, for people."""
    beat: int = 0
    """Grows as long as it lives."""
    token: str = ""
    """Of the last append that counted."""
    live: bool = True
    asks: int | None = None
    """The upper at which it asked the others to let it append next; they do so as they please."""


@dataclass(frozen=True)
class Reader:
    """Somebody who holds back what is let go of."""

    purpose: str
    since: int
    """It may read everything from this time on."""
    seen: int
    """It may still read the objects of the state with this number, and of later ones."""
    beat: int = 0
    lease: float = 0.0
    """For so many seconds it is waited for, if that is longer than others are."""


@dataclass(frozen=True, order=True)
class Fence:
    """The generation of writers that may append, and how often that was decided."""

    generation: int = 0
    epoch: int = 0

    def __str__(self) -> str:
        return f"generation {self.generation}, epoch {self.epoch}"


@dataclass(frozen=True)
class State:
    """All of it, but for the rows."""

    shard: str
    """A random id: two shards of one name that were there after each other are not the same."""
    schema: str
    """Of the rows: an Arrow schema, in base 64."""
    owner: str = ""
    """Whose transactions the times are, if they are anybody's: only its writers may append."""
    by: str = ""
    """A random id of the change that led to this state, so that whoever made it knows it again."""
    since: int = 0
    upper: int = 0
    fence: Fence = field(default_factory=Fence)
    batches: tuple[Batch, ...] = ()
    recent: tuple[Appended, ...] = ()
    """The last appends, in order."""
    writers: Mapping[str, Writer] = field(default_factory=dict)
    readers: Mapping[str, Reader] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Objects that no batch has any more, each with the number of the first state without it."""

    # -- writers --------------------------------------------------------------------------------

    def writer(self, id_: str) -> Writer:
        """A writer that may append, as far as leases go."""
        found = self.writers.get(id_)
        if found is None or not found.live:
            raise LeaseExpiredError(
                "this writer was not heard of for so long that others take it for gone, and what it had not"
                " appended was cleaned up. It may begin again as a new writer.",
                passing=True,
            )
        return found

    def refuse_fenced(self, fence: Fence) -> None:
        """Whoever writes for an earlier generation may not any more."""
        if fence < self.fence:
            raise FencedError(
                f"{self.fence} took over, and this one ({fence}) may not append any more: stop it"
            )

    def appended(self, id_: str, token: str, batch: Batch, hash_: str) -> State:
        """With a batch at its end. Only ask for what begins at the upper."""
        assert batch.lower == self.upper < batch.upper, "compare-and-append compares first"
        writer = self.writer(id_)
        batches = _with(self.batches, batch)
        writers = {**self.writers, id_: replace(writer, token=token, beat=writer.beat + 1, asks=None)}
        recent = (*self.recent, Appended(batch.lower, batch.upper, hash_))[-MAX_RECENT:]
        return replace(self, upper=batch.upper, batches=batches, writers=writers, recent=recent)

    def disagreement(self, lower: int, time: int, hash_: str) -> int | None:
        """The first time from `lower` on at which others appended something else than somebody for whom
        nothing changed before `time`, and what the hash says at that time; None if there is none, or not
        lately. For shards where every append has changes at its last time only."""
        for one in self.recent:
            last = one.upper - 1
            if lower <= last <= time and one.hash != (hash_ if last == time else NO_CHANGES):
                return last
            if one.lower <= time < last and hash_ != NO_CHANGES:
                return time
        return None

    def hash_of(self, lower: int, upper: int) -> str | None:
        """The hash of the append with exactly these bounds; None if there was none, or not lately."""
        found = (one.hash for one in self.recent if (one.lower, one.upper) == (lower, upper))
        return next(found, None)

    def with_writer(self, id_: str, purpose: str) -> State:
        return replace(self, writers={**self.writers, id_: Writer(purpose)})

    def without_writer(self, id_: str) -> State:
        """Its token is kept: it may come back and ask whether its last append counted."""
        if id_ not in self.writers:
            return self
        others = {name: writer for name, writer in self.writers.items() if name != id_}
        gone = [name for name, writer in others.items() if not writer.live]
        for name in gone[: max(0, len(gone) - MAX_GONE + 1)]:
            del others[name]
        return replace(self, writers={**others, id_: replace(self.writers[id_], live=False)})

    # -- readers --------------------------------------------------------------------------------

    def reader(self, id_: str) -> Reader:
        found = self.readers.get(id_)
        if found is None:
            raise LeaseExpiredError(
                "this reader was not heard of for so long that others take it for gone, and what it has not"
                " read may be gone too. It may begin again with a snapshot."
            )
        return found

    def with_reader(self, id_: str, reader: Reader) -> State:
        self.refuse_gone(reader.since)
        return replace(self, readers={**self.readers, id_: reader})

    def with_reader_away(self, id_: str, number: int) -> State:
        """A reader that does not run reads no objects: when it comes back, it begins with a newer state than
        this one, which has that number. The same state if it holds no object back."""
        reader = self.readers[id_]
        if all(dropped <= reader.seen for dropped in self.dropped.values()):
            return self
        return replace(self, readers={**self.readers, id_: replace(reader, seen=number)})

    def without_reader(self, id_: str) -> State:
        left = {name: reader for name, reader in self.readers.items() if name != id_}
        return replace(self, readers=left)

    def refuse_gone(self, time: int) -> None:
        """A time before `since` cannot be told from `since` any more."""
        if time < self.since:
            raise TimeGoneError(
                f"it can be read from time {self.since} on, and time {time} was asked for: what was before is"
                " merged. Begin again with a snapshot."
            )

    @property
    def held(self) -> int:
        """The time up to which `since` may move: not past any reader, and not past what there is."""
        return min([self.last, *(reader.since for reader in self.readers.values())])

    @property
    def last(self) -> int:
        """The newest time that can be read, as far as it means anything; -1 if there is none."""
        return self.batches[-1].lower if self.closed and self.batches else self.upper - 1

    def with_since(self, time: int) -> State:
        """`since` as far on as asked for, or as readers permit; it never goes back."""
        return replace(self, since=max(self.since, min(time, self.held)))

    # -- what is read ---------------------------------------------------------------------------

    def between(self, lower: int, upper: int) -> Sequence[Batch]:
        """The batches that have changes from `lower` to before `upper`."""
        return [batch for batch in self.batches if batch.lower < upper and batch.upper > lower]

    def exact_from(self, time: int) -> None:
        """Refuse if the changes from a time on cannot be told from those before: `TimeGoneError`."""
        if time <= self.since and self.since > 0:
            raise TimeGoneError(
                f"changes can be read from time {self.since + 1} on, and those from {time} on were asked for:"
                " what was before is merged. Begin again with a snapshot."
            )

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all objects that some batch has."""
        return frozenset(part.key for batch in self.batches for part in batch.parts)

    @property
    def closed(self) -> bool:
        return self.upper == CLOSED

    # -- letting go -----------------------------------------------------------------------------

    def merged(self, old: Sequence[Batch], new: Batch, number: int) -> State | None:
        """With one batch in place of several that follow each other; None if they are not there any more.

        `number` is that of the state that this becomes.
        """
        at = next((i for i, batch in enumerate(self.batches) if batch == old[0]), None)
        if at is None or self.batches[at : at + len(old)] != tuple(old):
            return None
        batches = (*self.batches[:at], new, *self.batches[at + len(old) :])
        kept = {part.key for part in new.parts}
        gone = {part.key: number for batch in old for part in batch.parts if part.key not in kept}
        return replace(self, batches=batches, dropped={**self.dropped, **gone})

    def deletable(self) -> frozenset[str]:
        """The dropped objects that no reader may still read."""
        least = min((reader.seen for reader in self.readers.values()), default=CLOSED)
        return frozenset(key for key, number in self.dropped.items() if number <= least)

    def forgotten(self, keys: Iterable[str]) -> State:
        """Without objects that have been deleted."""
        gone = set(keys)
        return replace(self, dropped={key: n for key, n in self.dropped.items() if key not in gone})


def refuse_bounds(lower: int, upper: int, first: int | None, last: int | None) -> None:
    """A batch has room for its changes, and for some time: anything else is no race lost but a mistake."""
    if not 0 <= lower < upper <= CLOSED:
        raise BoundsError(f"a batch from time {lower} to before {upper}: its upper must be above its lower")
    if first is not None and last is not None and not lower <= first <= last < upper:
        raise BoundsError(f"a batch from time {lower} to before {upper} has changes from {first} to {last}")


def _with(batches: tuple[Batch, ...], batch: Batch) -> tuple[Batch, ...]:
    """An empty batch makes the one before it longer, so that idle time costs nothing."""
    if batches and not batch.parts and not batches[-1].parts:
        return (*batches[:-1], replace(batches[-1], upper=batch.upper))
    return (*batches, batch)


STATE = Document("shard", 1, State, indent=None)
