"""A replica among the others of its group: what they decided, and which of them leads.

Every replica runs every transaction. Those outputs of which only one may write at a time are given what they
get by the one that leads: the first of those that live. The others keep what an output may not have yet, and
look from time to time how far the leader is.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.connectors import Split
from penstock.connectors.input.shard import SOURCE as SHARD
from penstock.connectors.output.shard import ShardOutput
from penstock.errors import DivergedError, FencedError, PenstockError, ShardError, StateError, StorageError
from penstock.journal.arrival import Arrival, gathered
from penstock.replica.binding import Binding, Entry
from penstock.replica.computed import Computed
from penstock.replica.config import GroupConfig
from penstock.replica.decision import Decision
from penstock.replica.promotion import Progress, Told, forget_progress, progress_key
from penstock.replica.verdicts import Verdict, Verdicts
from penstock.shard.pace import Pace
from penstock.shard.shard import Shard
from penstock.shard.state import Fence, State
from penstock.storage.document import Document

_log = logging.getLogger("penstock")

LOOK_SECONDS = 0.05
"""How often a replica looks for what others decided, if they did lately."""

HYDRATION = "hydration"
"""The connector that a replica's first rows are said to come from, if it is new to its group."""

_HUNG_SECONDS = 30.0
"""A replica that gets on by nothing for so long, though there is something, does not lead."""

_START_SECONDS = 0.5

_SHARE = 0.7
"""A leader stops to lead after this share of the lease without a sign of life that the others saw."""


@dataclass(frozen=True)
class Member:
    """What a storage directory says of the replica that it belongs to."""

    group: str
    member: str
    generation: int
    name: str = ""
    """Of the group."""


MEMBER = Document("member", 1, Member)
MEMBER_FILE = "member.json"


def verdicts_of(name: str, id_: str) -> str:
    """What the log is called that has a group's verdicts."""
    return f"{name}/verdicts/{id_}"


def table_output(table: str) -> str:
    """What the output is called that keeps a table for the group."""
    return f"table {table}"


def is_replica(storage: Path) -> bool:
    """Whether a storage directory belongs to a replica."""
    return (storage / MEMBER_FILE).exists()


def refuse_replica(storage: Path) -> None:
    """A replica's directory is of no use alone: its transactions are the group's."""
    if is_replica(storage):
        raise StateError(
            f"{storage} belongs to a replica of a group: start it as one, with the setting 'group', or give"
            " another directory"
        )


def skip_for_group(storage: Path, config: GroupConfig, number: int) -> None:
    """Have all replicas go on without a transaction that failed in one which does not run."""
    member = MEMBER.read(storage / MEMBER_FILE)
    place = config.place.opened()
    try:
        binding = Shard.open(place, f"{member.name}/binding").machine.state
        if binding.shard != member.group:
            raise StateError(
                f"{storage} belongs to a replica of another group than the one in {place}: say where its own"
                " is"
            )
        verdicts = Verdicts(place.log, verdicts_of(member.name, member.group))
        if member.generation != binding.fence.generation:
            refuse_skip(number, verdicts.of(number), member.generation)
        else:
            refuse_skip(number, verdicts.say(number, Verdict.SKIPPED))
    finally:
        place.close()


def refuse_skip(number: int, verdict: Verdict | None, read_only: int | None = None) -> None:
    """`StateError` unless a transaction is skipped in all replicas; `read_only` is the generation of one that
    has no say."""
    if verdict is Verdict.RUN:
        raise StateError(
            f"another replica has run transaction {number}, so it is not to be skipped: try it again with"
            " 'resume', and if it still fails here, start this replica anew, with an empty storage directory"
        )
    if verdict is None:
        raise StateError(
            f"generation {read_only} is read-only, so transaction {number} is not skipped here: skip it in"
            " the generation that runs, or start this one anew with a program that can run it"
        )


class Group:
    """One replica's membership, from `open` to `close`."""

    def __init__(self, config: GroupConfig, purpose: str) -> None:
        self.config = config
        self.leads = False
        self.trouble: str | None = None
        """Why the group cannot be asked now."""
        self._purpose = purpose
        self._binding: Binding | None = None
        self._verdicts: Verdicts | None = None
        self._member = Member("", "", 0)
        self._leave = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked = self._confirmed = 0.0
        self._beat = -1
        self._known_as = ""
        self._told: dict[str, int] = {}
        self._has_forgotten_progress = False
        self._forgotten = -1
        """The transaction up to which verdicts are forgotten."""
        self.generation = 0
        self.read_only = False
        """Whether its generation has decided nothing yet: it computes, and writes nothing."""
        self.settled = True
        """Whether it has taken over from the generation before, if there was one."""
        self._able = True
        self._progress = Progress()
        self._lag_seconds = 0.0
        self._ran_at: datetime | None = None
        """The time of the last transaction that was run here."""

    # -- joining --------------------------------------------------------------------------------

    def open(self, storage: Path, owner: str | None, *, temporary: bool) -> str:
        """Find the group, or make it, and say so in the storage directory, which has been the `owner`'s;
        returns its id."""
        config = self.config
        place = config.place.opened()
        try:
            self._binding = Binding(place, config.name, config.lease)
        except BaseException:
            place.close()
            raise
        self._leave = temporary
        self._verdicts = Verdicts(place.log, verdicts_of(config.name, self._binding.id))
        state = self._binding.state
        self._member = self._remembered(storage, self._binding.id, owner, state.fence.generation)
        self.generation = self._binding.generation = self._member.generation
        self._refuse_old(state)
        running = self._binding.running()
        self.read_only = self.generation > (0 if running is None else running[0])
        if self.read_only and self._binding.state.upper == 0:
            raise StateError(
                f"the group {config.name} in {config.place.uri} has no transactions, so there is nothing that"
                f" generation {self.generation} could take over: start it without a generation"
            )
        return self._binding.id

    def _remembered(self, storage: Path, group: str, owner: str | None, runs: int) -> Member:
        """What the directory says; of what was begun in an earlier generation than runs only that one."""
        path = storage / MEMBER_FILE
        if path.exists():
            found = MEMBER.read(path)
            if found.group != group:
                raise StateError(
                    f"{storage} belongs to a replica of another group (the one in {self.config.place.uri} may"
                    " have been deleted and made anew). Give this replica an empty directory."
                )
            wanted = found.generation if self.config.generation is None else self.config.generation
            if (now := replace(found, generation=wanted, name=self.config.name)) != found:
                MEMBER.write(path, now)
            return now
        if owner not in (None, group):
            raise StateError(
                f"{storage} belongs to a pipeline that ran alone, or in another group, whose transactions"
                " this group does not know. Give this replica an empty directory."
            )
        generation = runs if self.config.generation is None else self.config.generation
        made = Member(group, secrets.token_hex(8), generation, self.config.name)
        MEMBER.write(path, made)
        return made

    def entry(self) -> Entry | None:
        """Where a replica with an empty directory begins; None: with nothing, and all that was decided."""
        return self._joined.enter(self._member.member, self._purpose)

    def table_output(self, table: str) -> ShardOutput:
        """Keeps what a table has for replicas that come later."""

        def until() -> int:
            return self._joined.state.since

        return ShardOutput(table_output(table), self.config.place, self._table(table), until)

    def _table(self, table: str) -> str:
        return f"{self.config.name}/tables/{quote(table, safe='')}"

    def hydration(self, tables: Mapping[str, str | None], at: int) -> tuple[list[Arrival], datetime]:
        """What tables had after a transaction, and its time; those that have a table as their value are what
        could not be read of that one."""
        place = self.config.place.opened()
        try:
            arrivals = []
            for table, errors_of in tables.items():
                if not place.log.numbers(self._table(table)):
                    continue  # it is new with this generation
                state = Shard.open(place, self._table(table)).machine.state
                rows = sum(batch.rows for batch in state.between(0, at + 1))
                payload = {"name": self._table(table), "at": at, "errors": errors_of is not None}
                arrivals.append(Arrival(errors_of or table, (Split(SHARD, payload, rows),), HYDRATION))
        finally:
            place.close()
        return gathered(arrivals), self._joined.last_at

    @property
    def member(self) -> str:
        """What this replica is called, over restarts too."""
        return self._member.member

    @property
    def since(self) -> int:
        """What made up later transactions than this one may have to be read by any replica."""
        return self._joined.state.since

    def may_be_forgotten(self) -> bool:
        """Whether every other replica has run all that this one knows of."""
        try:
            return self._joined.others_have_all()
        except ShardError as error:
            _log.warning("%s", error)
            return False

    @property
    def reading(self) -> dict[str, Any]:
        """What the reader of tables needs beside a split."""
        return {"place": self.config.place.plain}

    def refuse(self, program: Computed, led: frozenset[str]) -> None:
        """Refuse a program that cannot follow on the one that runs, before anything is opened."""
        running = self._joined.running()
        if running is not None and running[0] != self.generation:
            program.refuse_after(running[1], led)

    def join(self, last: int, program: Computed, led: frozenset[str], confirmed: int) -> None:
        """Go by what is decided after transaction `last`, and unless it is `read_only` decide, too. `led` are
        the outputs that only one replica may write; `confirmed`: see `Verdicts`."""
        binding, member = self._joined, self._member.member
        # What it let go of was confirmed, too.
        known = max(confirmed, binding.held(member)) if self.read_only else last
        self.verdicts.confirmed = known
        binding.join(member, self._purpose, last, program, known)
        if binding.before is not None:
            program.refuse_after(binding.before, led)
        self.settled = binding.before is None and not self.read_only
        self._ran_at = binding.last_read_at
        if self.read_only:
            threading.Thread(target=self._tell_of_start, name="penstock hydration", daemon=True).start()

    def _tell_of_start(self) -> None:
        """Say that this replica is there, until it has its first transaction."""
        while self._thread is None and not self._stopped.wait(_START_SECONDS):
            try:
                self._progress = self._progress.after(self._joined.refresh().upper - 1, -1)
                self._tell_progress({})
            except PenstockError as error:
                self.trouble = str(error)

    def ran(self, at: datetime) -> None:
        """A transaction that has this time was run here."""
        self._ran_at = at

    @property
    def running_generation(self) -> int:
        """The one that may decide."""
        return self._joined.state.fence.generation

    def activate(self) -> None:
        """Be one of those who decide."""
        self._joined.take_part(True)
        self.read_only = False

    @property
    def before(self) -> Computed | None:
        """What the generation before this one computes, until this one has decided something."""
        return self._joined.before

    def fence(self) -> Fence:
        """What this generation writes with."""
        return self._joined.fence

    @property
    def is_promoted(self) -> bool:
        """Whether it may take over from the generation before, and has not."""
        return not self.settled and self._joined.state.fence.generation == self.generation

    def _refuse_old(self, state: State) -> None:
        if self.generation < state.fence.generation:
            raise FencedError(
                f"generation {state.fence.generation} of the group {self.config.name} took over, and this"
                f" replica is of generation {self.generation}: it may not write any more. Stop it."
            )

    @property
    def _joined(self) -> Binding:
        assert self._binding is not None, "it was opened"
        return self._binding

    # -- deciding -------------------------------------------------------------------------------

    def has(self, number: int) -> bool:
        """Whether somebody has decided on a transaction, as far as is known."""
        return self._joined.state.upper > number

    def decide(self, number: int, arrivals: Sequence[Arrival], at: datetime) -> Decision:
        """What a transaction is made of: these arrivals, or what another replica decided before. Raises
        `ShardError`, perhaps a passing one."""
        if not self.read_only:
            return self._joined.decide(number, arrivals, at)
        found = self._joined.decided(number)
        assert found is not None, "who may not decide asks only for what was decided"
        return found

    def propose(self, arrivals: Sequence[Arrival], at: datetime) -> int | None:
        """Have rows of clients be a transaction after all that are decided; see `Binding.propose`."""
        return None if self.read_only else self._joined.propose(arrivals, at)

    # -- verdicts -------------------------------------------------------------------------------

    @property
    def verdicts(self) -> Verdicts:
        """What becomes of each transaction."""
        assert self._verdicts is not None, "it was opened"
        return self._verdicts

    def skip(self, number: int) -> None:
        """Have all replicas go on without a transaction that cannot be evaluated. Raises if one of them ran
        it, or if this one is read-only."""
        verdicts = self.verdicts
        if self.read_only:
            refuse_skip(number, verdicts.of(number), self.generation)
        else:
            refuse_skip(number, verdicts.say(number, Verdict.SKIPPED))
        verdicts.confirmed = number

    def confirm(self, last: int, skipped: Container[int]) -> None:
        """Compare what this replica did up to transaction `last` with what others did, as far as that is
        known. Raises `DivergedError`."""
        self.verdicts.confirm(last, skipped)
        if self.verdicts.confirmed < min(last, self._joined.state.since - 1):
            raise StorageError(
                f"the group {self.config.name} in {self.config.place.uri} does not know any more whether"
                f" transaction {self.verdicts.confirmed + 1} was run: this replica was away for too long."
                " Start it with an empty storage directory."
            )

    def has_skipped(self, number: int) -> bool:
        """Whether somebody said so."""
        return self.verdicts.of(number) is Verdict.SKIPPED

    def runs(self, number: int) -> bool:
        """Have all replicas run a transaction that this one has evaluated, unless it is read-only; False if
        it was skipped meanwhile."""
        if self.read_only:
            return not self.has_skipped(number)
        return self.verdicts.say(number, Verdict.RUN) is Verdict.RUN

    def _forget_verdicts(self) -> None:
        """On transactions that every replica has."""
        since = self._joined.state.since
        if self._forgotten < since:
            self.verdicts.trim(since)
            self._forgotten = since

    # -- watching -------------------------------------------------------------------------------

    def start(
        self,
        last: Callable[[], int],
        everywhere: Callable[[], int],
        news: Callable[[], None],
        lead: Callable[[bool], None],
        frontiers: Callable[[], Mapping[str, int]],
        computed: Callable[[], Mapping[str, int]],
        reached: Callable[[str, int], None],
        ousted: Callable[[PenstockError], None],
        promoted: Callable[[], None],
        follow: Callable[[], None],
        lost: Callable[[PenstockError], None],
        able: Callable[[], bool],
        free: Callable[[], bool],
        skip: Callable[[], None],
    ) -> None:
        """Watch the group in a thread.

        `last` is the last transaction that ended here, and what came up to `everywhere` is in all outputs;
        `news` is called when others decided on a later one, `lead` when this replica begins or ceases to
        lead. `skip` is called from time to time, to look whether others skipped what fails here. `frontiers`
        are how far the outputs are which it leads, `computed` how far this replica itself is with each that
        programs ask for, and `reached` is told how far they are if another one
        leads.
        """

        def run() -> None:
            slow = 0.0
            pace = Pace(LOOK_SECONDS, min(self._joined.place.log.rest, self.config.lease / 10))
            pause = LOOK_SECONDS
            while not self._stopped.wait(pause):
                try:
                    self._able = able()
                    self._take_part(free(), lead)
                    self._look(last(), news, lead, promoted)
                    pause = pace.after((self._joined.state.upper, self._joined.state.fence))
                    if time.monotonic() >= slow:
                        slow = time.monotonic() + min(1.0, self.config.lease / 5)
                        if self.read_only:
                            follow()
                        skip()
                        self._settle(everywhere(), frontiers(), computed(), reached)
                    self.trouble = None
                except (FencedError, DivergedError) as error:
                    ousted(error)
                    self._resign(lead)
                    return
                except StorageError as error:
                    lost(error)
                    self._resign(lead)
                    return
                except PenstockError as error:
                    self._complain(error, lead)
                except Exception as error:
                    _log.exception("a replica could not look at its group")
                    self._complain(error, lead)

        self._thread = threading.Thread(target=run, name="penstock group", daemon=True)
        self._thread.start()

    def _resign(self, lead: Callable[[bool], None]) -> None:
        """Leave it to others to lead."""
        self._lead(False, lead)
        try:
            self._joined.take_part(False)
        except PenstockError as error:  # they find out by themselves
            _log.warning("%s", error)

    def _complain(self, error: Exception, lead: Callable[[bool], None]) -> None:
        if self.trouble != str(error):
            _log.warning("the group cannot be asked: %s", error)
        self.trouble = str(error)
        self._lead(self.leads and self._is_fresh, lead)

    def _look(
        self,
        last: int,
        news: Callable[[], None],
        lead: Callable[[bool], None],
        promoted: Callable[[], None],
    ) -> None:
        began = time.monotonic()
        state = self._joined.refresh()
        self._refuse_old(state)
        self._progress = self._progress.after(state.upper - 1, last)
        if self.is_promoted:
            promoted()
        if not self.read_only:
            self._observe(state, began)
            self._lead(self._may_lead(state), lead)
        if state.upper > last + 1:
            news()

    def _take_part(self, free: bool, lead: Callable[[bool], None]) -> None:
        """Whoever cannot go on, or does not though it is `free` to, leaves it to others to lead."""
        hung = free and self._progress.idle_seconds > max(_HUNG_SECONDS, 3 * self.config.lease)
        if self.read_only:
            return
        if not self._able or hung:
            self._lead(False, lead)  # before another one may
        self._joined.take_part(self._able and not hung)

    def _observe(self, state: State, began: float) -> None:
        """Note when the others saw a sign of life at the earliest: after the last look that saw none."""
        me = state.writers.get(self._joined.member)
        if me is not None and (me.beat, self._joined.member) != (self._beat, self._known_as):
            self._confirmed = self._looked
            self._beat, self._known_as = me.beat, self._joined.member
        self._looked = began

    def _may_lead(self, state: State) -> bool:
        live = [id_ for id_, writer in state.writers.items() if writer.live]
        return live[:1] == [self._joined.member] and self._is_fresh

    @property
    def _is_fresh(self) -> bool:
        return time.monotonic() - self._confirmed < _SHARE * self.config.lease

    def may_write(self) -> bool:
        """Whether it leads, and nobody can have taken it for gone yet."""
        return self.leads and self._is_fresh

    def _lead(self, leads: bool, lead: Callable[[bool], None]) -> None:
        if leads != self.leads:
            self.leads = leads
            _log.warning("this replica %s", "leads now" if leads else "does not lead any more")
            lead(leads)

    def _settle(
        self,
        everywhere: int,
        frontiers: Mapping[str, int],
        computed: Mapping[str, int],
        reached: Callable[[str, int], None],
    ) -> None:
        """Tell others how far this replica is, or be told; let go of what nobody needs."""
        binding = self._joined
        self._lag_seconds = self._measured_lag()
        if self.read_only:
            self._tell_progress(computed)
        if everywhere >= 0:
            known = min(everywhere, self.verdicts.confirmed) if self.read_only else everywhere
            binding.release(known)  # a replica that is new begins with what the tables had there
        for output, transaction in frontiers.items():
            key = f"{self.config.name}/outputs/{binding.id}/{quote(output, safe='')}"
            if self.leads:
                if self._told.get(output) != transaction:
                    binding.place.blobs.put(key, json.dumps({"transaction": transaction}).encode())
                    self._told[output] = transaction
            elif (data := binding.place.blobs.get(key)) is not None:
                reached(output, int(json.loads(data)["transaction"]))
        if not self.read_only:
            binding.clean()
            self._forget_verdicts()
            if not self._has_forgotten_progress:
                forget_progress(binding.place, self.config.name, self.generation)
                self._has_forgotten_progress = True

    def _measured_lag(self) -> float:
        """How much later the last transaction that was decided is than the last one that was run here."""
        if self._progress.lag == 0:
            return 0.0
        newest = self._joined.time_of(self._joined.state.upper - 1)
        ran = self._ran_at or self._joined.time_of(0)
        if newest is None or ran is None:  # it is asked again, of what is there then
            return self._lag_seconds
        return round(max(0.0, (newest - ran).total_seconds()), 3)

    def _tell_progress(self, computed: Mapping[str, int]) -> None:
        """Say how far this replica is, for those who would promote its generation."""
        key = progress_key(self.config.name, self.generation, self._member.member)
        progress = self._progress
        told = Told(
            progress.count, self._is_ready, self.is_hydrated, progress.lag, self._lag_seconds, dict(computed)
        )
        self._joined.place.blobs.put(key, told.encoded)

    @property
    def is_hydrated(self) -> bool:
        """Whether this replica has its first transaction."""
        return self._thread is not None

    @property
    def _is_ready(self) -> bool:
        return self._able and self.is_hydrated and self._progress.is_ready

    def stats(self) -> dict[str, Any]:
        """What there is to say of it."""
        state = self._joined.state
        live = [writer.purpose for writer in state.writers.values() if writer.live]
        return {
            "name": self.config.name,
            "place": self.config.place.uri,
            "leads": self.leads,
            "generation": self.generation,
            "running_generation": state.fence.generation,
            "read_only": self.read_only,
            "lag_transactions": self._progress.lag,
            "lag_seconds": self._lag_seconds,
            "hydrated": self.is_hydrated,
            "ready": self.read_only and self._is_ready,
            "replicas": live,
            "decided": state.upper - 1,
            "trouble": self.trouble,
        }

    def close(self) -> None:
        """End; others wait for this replica to come back, unless its storage was temporary."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._binding is None:
            return
        try:
            self._binding.close(leave=self._leave)
        except ShardError as error:  # the others find out by themselves
            _log.warning("%s", error)
