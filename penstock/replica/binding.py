"""Which input makes up which transaction: whoever appends number n to the binding has decided transaction n.

The binding is a shard, whose times are transactions. It has

    ("decision", "", what transaction n is made of)     at n; gone again at n + 1
    ("position", connector, where it stands)            from n on, until a later transaction moves it
    ("program", generation, what it computes)           from its first decision on, until the next one's

So what is decided is read at its own time, what was decided long ago takes no room, and the positions of all
connectors at any time that can be read are there. Rows that no source has any more, because a client sent
them, are objects beside it, which the decision names.

A replica that is slower than the others would always come too late with such rows, if it had to run all
transactions before the one that it decides on. So it may decide ahead (`propose`): it reads what was decided
on, which is fast, and appends after that. If others are faster even then, it asks for its turn, and they let
it go first, for a moment each time that it asks.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.errors import (
    DamagedError,
    LeaseExpiredError,
    ShardError,
    StateError,
    StorageError,
    TimeGoneError,
)
from penstock.failpoints import failpoint
from penstock.journal.arrival import Arrival, gathered
from penstock.replica.computed import Computed
from penstock.replica.decision import Decision, Encoded, encode
from penstock.shard import parts
from penstock.shard.keeping import Keeper
from penstock.shard.reader import ShardReader
from penstock.shard.rows import TIME, WEIGHT
from penstock.shard.shard import Shard
from penstock.shard.state import Fence, Part, State
from penstock.shard.stores.place import Place
from penstock.shard.writer import ShardWriter

SCHEMA = pa.schema([("kind", pa.string()), ("name", pa.string()), ("content", pa.string())])

AWAY_SECONDS = 24 * 60 * 60
"""A replica that does not run is waited for so long: what it has not seen yet stays."""

_DECISION, _POSITION, _PROGRAM = "decision", "position", "program"
_AHEAD = 64
"""So many decisions are read at once."""

_KEPT = 1024
"""So many that were read ahead are kept; what comes after them is read again."""

WAY_SECONDS = 2.0
"""For so long one that asked for its turn is let go first: far longer than it takes to read and append."""

_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Entry:
    """Where a replica begins: with what there was after a transaction."""

    at: int
    positions: Mapping[str, Any]


class Binding:
    """One replica's side of it. One thread decides; any may look at `state`."""

    def __init__(self, place: Place, group: str, lease: float) -> None:
        self.place = place
        self._group = group
        self._shard = Shard.open(place, f"{group}/binding", SCHEMA, lease=lease)
        self._reader: ShardReader | None = None
        self._writer: ShardWriter | None = None
        self._keeper: Keeper | None = None
        self.generation = 0
        """Of this replica."""
        self._program = Computed("")
        self.before: Computed | None = None
        """What the last generation that decided computes, if that is not this one."""
        self._announced: tuple[str, str] | None = None
        """Its row."""
        self._lock = threading.RLock()
        """Held while the writer writes or is replaced."""
        self._purpose = ""
        self._cleaned = 0
        """Rows of transactions up to this one were deleted."""
        self._announcements: dict[int, int] = {}
        """The transactions that were read ahead with which a generation said what it computes."""
        self._read: dict[int, str] = {}
        """Decisions that were read ahead."""
        self._last: tuple[int, str] | None = None
        """The last decision that this replica read, if it has not gone by it yet."""
        self._positions: dict[str, str] = {}
        """Where the connectors stand after that."""
        self._tokens: set[str] = set()
        """Of what this replica wanted the next transaction to be."""
        self._proposed: set[str] = set()
        """Of what it proposes to be a later one."""
        self._won: int | None = None
        """The transaction that became of that."""
        self._asking: dict[tuple[str, int], float] = {}
        """Those who ask for their turn, and when that was seen first."""

    def enter(self, member: str, purpose: str) -> Entry | None:
        """Have a replica begin that has nothing: what it needs from then on is held. None: nothing has been
        let go of yet, so it can begin with the first transaction."""
        while True:
            since = self.refresh().since
            try:
                ShardReader(self._shard, purpose, since, id_=member, lease=AWAY_SECONDS)
                break
            except TimeGoneError:
                continue  # others moved on
        if since == 0:
            return None
        rows = self._shard.snapshot(since).to_pylist()
        positions = {r["name"]: json.loads(r["content"]) for r in rows if r["kind"] == _POSITION}
        return Entry(since, positions)

    def running(self) -> tuple[int, Computed] | None:
        """The generation that decided last, and what it computes; None if nothing was decided."""
        while (upper := self.refresh().upper) > 0:
            try:
                rows = self._shard.snapshot(upper - 1).to_pylist()
            except TimeGoneError:
                continue  # others moved on
            (found,) = (row for row in rows if row["kind"] == _PROGRAM)
            return int(found["name"]), Computed.of(found["content"])
        return None

    @property
    def last_at(self) -> datetime:
        """The time of the last transaction that this replica read."""
        assert self._last is not None, "it read one"
        return Encoded.of(self._last[1], str(self)).at

    def time_of(self, number: int) -> datetime | None:
        """The time of a transaction that somebody decided on; None if that is not known any more."""
        try:
            rows = self._shard.snapshot(number).to_pylist()
        except TimeGoneError:
            return None
        texts = [row["content"] for row in rows if row["kind"] == _DECISION]
        return Encoded.of(texts[0], f"{self}: the decision of transaction {number}").at if texts else None

    @property
    def last_read_at(self) -> datetime | None:
        """The time of the last transaction that this replica read; None if it read none."""
        return None if self._last is None else self.last_at

    def join(self, member: str, purpose: str, last: int, program: Computed, held: int | None = None) -> None:
        """Go by what is decided after `last`, the last transaction that this replica has. `member` stays the
        same over restarts, `program` is what it computes. What comes after `held` is kept for it, or after
        `last`."""
        self._program, self._purpose = program, purpose
        self._refuse_strange(last)
        self._read_on(member, last if held is None else min(last, held))
        if self.state.upper > 0:
            self._load(max(last, 0), kept=last >= 0)
        self._keep()

    def take_part(self, able: bool) -> None:
        """Be one of those who decide and may lead, or not for now."""
        if able == (self._writer is not None):
            return
        with self._lock:
            if able and self._writer is None:
                self._writer = ShardWriter(self._shard, self._purpose, self.fence)
                self._keep()
            elif not able and self._writer is not None:
                writer, self._writer = self._writer, None
                self._keep()
                writer.close()

    def _keep(self) -> None:
        assert self._reader is not None, "it joined"
        if self._keeper is not None:
            self._keeper.stop()
        self._keeper = Keeper(self._shard, self._writer, [self._reader])
        self._keeper.start()

    @property
    def fence(self) -> Fence:
        """What this generation writes with."""
        now = self.state.fence
        return now if now.generation == self.generation else Fence(self.generation)

    @property
    def id(self) -> str:
        """Of the group: another one if it was deleted and made anew."""
        return self.state.shard

    @property
    def member(self) -> str:
        """What this replica is called among those who write; another one when others took it for gone."""
        writer = self._writer  # another thread may give it up
        return "" if writer is None else writer.id

    @property
    def state(self) -> State:
        """As it was read last."""
        return self._shard.machine.state

    def refresh(self) -> State:
        """As it is now."""
        return self._shard.machine.refresh()

    def __str__(self) -> str:
        return str(self._shard)

    # -- deciding -------------------------------------------------------------------------------

    def decided(self, number: int) -> Decision | None:
        """What the next transaction is made of, if somebody has decided that."""
        if number not in self._read:
            if self.state.upper <= number and self.refresh().upper <= number:
                return None
            self._read_from(number)
        decision = self._decision(number, self._read[number])
        announces = self._announcements.pop(number, None) == self.generation
        if announces:
            self.before = None
        del self._read[number]
        self._tokens.clear()
        return replace(decision, announces=announces)

    def decide(self, number: int, arrivals: Sequence[Arrival], at: datetime) -> Decision:
        """What the next transaction is made of: these arrivals, unless somebody else was faster.

        After a `ShardError` that is `passing` nobody knows; the same call again finds out, and what it wanted
        the first time is known as its own.
        """
        if (found := self.decided(number)) is not None:
            return found
        if self._gave_way(number) and (found := self.decided(number)) is not None:
            return found
        given = gathered(arrivals)
        at = self._not_before_last(at)
        announces = self._announced != self._own_row
        if self._append(number, given, at, self._tokens):
            self._tokens.clear()
            self.before = None
            return Decision(number, at, given, mine=True, announces=announces)
        found = self.decided(number)
        assert found is not None, "somebody else was faster"
        return found

    def propose(self, arrivals: Sequence[Arrival], at: datetime) -> int | None:
        """Have arrivals that move no connector be the transaction after all that are decided, however many of
        those this replica has to run yet; returns its number. None: others were faster all the time, or its
        generation has decided on nothing yet.

        After a `ShardError` that is `passing` nobody knows; the same call again finds out.
        """
        given = gathered(arrivals)
        end = time.monotonic() + 2 * WAY_SECONDS
        asked = False
        while True:
            self._read_all()
            # If an attempt whose end was not known counted, it was read now; or the next one has its number.
            if self._won is not None or self._announced != self._own_row or time.monotonic() > end:
                break
            if not self._append(self._head + 1, given, self._not_before_last(at), self._proposed):
                if not asked:
                    self._ask()
                asked = True
        found, self._won = self._won, None
        self._proposed.clear()
        return found

    def _append(self, number: int, given: Sequence[Arrival], at: datetime, tokens: set[str]) -> bool:
        """Decide on a transaction that nobody has decided on, as far as is known; False if somebody has."""
        token = secrets.token_hex(8)
        tokens.add(token)
        objects = self._put(number, token, given)
        text = encode(at, token, given, objects)
        failpoint("binding.uploaded")
        changes = self._changes(number, text, Decision(number, at, given).positions)
        with self._lock:
            self.take_part(True)
            assert self._writer is not None, "it takes part"
            outcome = self._writer.compare_and_append(changes, number, number + 1)
        if outcome.appended:
            failpoint("binding.decided")
            self._announced = self._own_row
            self._note(number, text)
        elif objects and self._token_of(number) != token:
            self.place.blobs.delete([part.key for part in objects.values()])
        return outcome.appended

    def _token_of(self, number: int) -> str:
        """Whose decision it became: what a writer appended before it was gone for long may have counted."""
        self._read_from(number)
        return Encoded.of(self._read[number], f"{self}: the decision of transaction {number}").token

    def _not_before_last(self, at: datetime) -> datetime:
        """The clocks of two machines differ."""
        return at if self._last is None else max(at, self.last_at)

    # -- turns ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the next turn."""
        with self._lock:
            if self._writer is not None:
                self._writer.ask()

    def _gave_way(self, number: int) -> bool:
        """Wait for those who asked for their turn, as long as they have not decided on this transaction."""
        waited = False
        while self._is_asked():
            waited = True
            if self.refresh().upper > number:
                break
            time.sleep(_LOOK_SECONDS)
        return waited

    def _is_asked(self) -> bool:
        """Whether somebody asks for its turn, and has not asked for too long."""
        now = time.monotonic()
        asking = [
            (id_, writer.asks)
            for id_, writer in self.state.writers.items()
            if writer.live and writer.asks is not None and id_ != self.member
        ]
        self._asking = {who: self._asking.get(who, now) for who in asking}
        return any(now - since < WAY_SECONDS for since in self._asking.values())

    def _changes(self, number: int, text: str, positions: Mapping[str, Any]) -> pa.Table:
        """What a decision adds, and what it takes back."""
        rows: list[tuple[str, str, str, int]] = [(_DECISION, "", text, 1)]
        if self._announced != self._own_row:
            rows.append((_PROGRAM, *self._own_row, 1))
            if self._announced is not None:
                rows.append((_PROGRAM, *self._announced, -1))
        if number > 0:
            assert self._last is not None, "there was one before"
            assert self._last[0] == number - 1, "one after the other"
            rows.append((_DECISION, "", self._last[1], -1))
        for connector, position in positions.items():
            before, after = self._positions.get(connector), json.dumps(position)
            if before != after:
                rows.append((_POSITION, connector, after, 1))
                if before is not None:
                    rows.append((_POSITION, connector, before, -1))
        kinds, names, contents, weights = zip(*rows, strict=True)
        return pa.table(
            {
                "kind": kinds,
                "name": names,
                "content": contents,
                TIME: pa.array([number] * len(rows), pa.int64()),
                WEIGHT: pa.array(weights, pa.int64()),
            }
        )

    def _put(self, number: int, token: str, arrivals: Sequence[Arrival]) -> dict[int, Part]:
        """Upload the rows that clients sent; their keys tell when nobody needs them any more."""
        found: dict[int, Part] = {}
        for index, arrival in enumerate(arrivals):
            if isinstance(arrival.data, pa.Table):
                data, content = parts.encode(arrival.data)
                key = f"{self._rows}/{number:016}-{token}-{index}.arrow"
                self._shard.put(key, data)
                found[index] = Part(key, content, arrival.data.num_rows)
        return found

    # -- reading --------------------------------------------------------------------------------

    def _read_all(self) -> None:
        """Read everything that was decided up to now."""
        upper = self.refresh().upper
        while self._head + 1 < upper:
            self._read_from(self._head + 1, keep=len(self._read) < _KEPT)

    def _read_from(self, number: int, *, keep: bool = True) -> None:
        assert self._reader is not None, "it joined"
        progress = self._reader.listen(number, most=number + _AHEAD)
        found: dict[int, str] = {}
        # In order: of two generations that said what they compute the later one counts.
        for row in sorted(progress.changes.to_pylist(), key=lambda row: int(row[TIME])):
            if row["kind"] == _DECISION and row[WEIGHT] > 0:
                found[row[TIME]] = row["content"]
            if row["kind"] == _PROGRAM and row[WEIGHT] > 0:
                self._announcements[row[TIME]] = int(row["name"])
                if row[TIME] > self._head:
                    self._announced = (row["name"], row["content"])
                    self._compare()
        for at in range(number, progress.upper):
            if at not in found:
                raise self._damaged(f"there is no decision for transaction {at}")
            self._note(at, found[at])
        if keep:
            self._read.update(found)

    @property
    def _head(self) -> int:
        """The last decision that was read."""
        return -1 if self._last is None else self._last[0]

    def _note(self, number: int, text: str) -> None:
        """Know what was decided, to decide what comes after it."""
        if number <= self._head:
            return
        found = Encoded.of(text, f"{self}: the decision of transaction {number}")
        self._last = (number, text)
        self._positions.update({name: json.dumps(position) for name, position in found.positions.items()})
        if found.token in self._proposed:
            self._won = number

    def _damaged(self, what: str) -> ShardError:
        return ShardError(
            f"{self} is damaged: {what}. Restore {self.place} from a copy, or begin with a group of another"
            " name and empty storage directories."
        )

    def _decision(self, number: int, text: str) -> Decision:
        found = Encoded.of(text, f"{self}: the decision of transaction {number}")
        arrivals = []
        for portion in found.portions:
            part = Encoded.part(portion)
            rows = None
            if part is not None:
                data = self._shard.get(part.key)
                if data is None:
                    raise self._damaged(f"{part.key} is missing")
                try:
                    rows = parts.decode(data, part, str(self.place))
                except DamagedError as error:
                    raise self._damaged(str(error)) from error
            arrivals.append(Encoded.arrival(portion, rows))
        return Decision(number, found.at, arrivals, found.token in self._tokens)

    def _load(self, at: int, *, kept: bool) -> None:
        """What was decided up to a transaction that this replica has, if it is `kept`; of the first one only
        which program it is."""
        for row in self._shard.snapshot(at).to_pylist():
            if row["kind"] == _PROGRAM:
                self._announced = (row["name"], row["content"])
            if row["kind"] == _DECISION and kept:
                self._last = (at, row["content"])
            if row["kind"] == _POSITION and kept:
                self._positions[row["name"]] = row["content"]
        self._compare()

    @property
    def _own_row(self) -> tuple[str, str]:
        return (str(self.generation), self._program.text)

    def _compare(self) -> None:
        """Those of one generation compute the same."""
        assert self._announced is not None, "whoever decides first says what it computes"
        generation, found = int(self._announced[0]), Computed.of(self._announced[1])
        if generation != self.generation:
            self.before = found
        elif found.mark != self._program.mark:
            raise StateError(
                f"the replicas of the group {self._group} in {self.place} run another program. Give this one"
                f" the same program, or start it as a new generation: {generation + 1}."
            )

    def _refuse_strange(self, last: int) -> None:
        upper = self._shard.machine.state.upper
        if upper <= last:
            raise StorageError(
                f"{self._shard} has decided on the transactions before {upper}, and this replica has"
                f" transaction {last}: its storage directory belongs to another group, or the group lost"
                " something. Give it an empty directory, or restore the group from a copy."
            )

    # -- letting go -----------------------------------------------------------------------------

    def release(self, last: int) -> None:
        """This replica will not ask for what made up transactions up to `last` any more."""
        assert self._reader is not None, "it joined"
        try:
            self._reader.downgrade_since(max(last, 0))
        except LeaseExpiredError:
            self._read_on(self._reader.id, last)

    def _read_on(self, member: str, last: int) -> None:
        """Hold back everything after `last`, if it is still there."""
        try:
            self._reader = ShardReader(
                self._shard, self._purpose, max(last, 0), id_=member, lease=AWAY_SECONDS
            )
            self._shard.machine.state.exact_from(last + 1)
        except (TimeGoneError, LeaseExpiredError) as error:
            raise StorageError(
                f"the group {self._group} in {self.place} does not know any more what transaction {last + 1}"
                " is made of: this replica was away for too long. Start it with an empty storage directory."
            ) from error

    def held(self, member: str) -> int:
        """The transaction after which everything is kept for a replica; -1: it is not known."""
        reader = self.state.readers.get(member)
        return -1 if reader is None else reader.since

    def others_have_all(self) -> bool:
        """Whether no other replica needs what made up the transactions that this one knows of."""
        own = "" if self._reader is None else self._reader.id
        others = [reader.since for id_, reader in self.refresh().readers.items() if id_ != own]
        return self._last is None or all(since >= self._last[0] for since in others)

    def clean(self) -> None:
        """Delete rows that every replica has, and those of decisions that were not taken."""
        since = self.state.since
        if since <= self._cleaned:  # nothing has become needless: there may be a great many of them
            return
        keys = self.place.blobs.keys(self._rows)
        self.place.blobs.delete([key for key in keys if _number_of(key) <= since])
        self._cleaned = since

    @property
    def _rows(self) -> str:
        return f"{self._shard.machine.name}/rows"

    def close(self, *, leave: bool = False) -> None:
        """Be gone for a while, or with `leave` for good: then nobody waits for this replica."""
        if self._keeper is not None:
            self._keeper.stop()
        try:
            if leave and self._reader is not None:
                self._reader.close()
            if self._writer is not None:
                self._writer.close()
        finally:
            self.place.close()


def _number_of(key: str) -> int:
    """The transaction that rows were put for.

    >>> _number_of("shop/binding/rows/0000000000000042-c0ffee-0.arrow")
    42
    """
    return int(key.rpartition("/")[2].partition("-")[0])
