"""When a new generation may take over, and how it is told to.

A generation that is started while another one runs is read-only: it computes every transaction and writes
nothing. It says how far it is, and is ready when it has been where the other one is for a while. To promote
it is one change of the binding: its fence. From then on nothing is decided by the generation before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from penstock.errors import ShardError, StateError
from penstock.failpoints import failpoint
from penstock.replica.config import GroupConfig
from penstock.shard.shard import Shard
from penstock.shard.state import Fence
from penstock.shard.stores.place import Place

STABLE_SECONDS = 2.0
"""A generation that was not behind for so long is ready."""

CLOSE = 4
"""With so few transactions to go it is not behind: one is under way, and others were just decided."""

_LOOK_SECONDS = 3.0


@dataclass(frozen=True)
class Progress:
    """How far a replica is behind what was decided, and since when; times are of its own clock."""

    lag: int = 0
    began: float | None = None
    """When it was not behind for the first time; None: it is."""
    behind: float | None = None
    """Since when it lacks something and gets on by nothing."""
    last: int = -1
    count: int = 0

    def after(self, decided: int, last: int) -> Progress:
        """What it is when so much was decided and so much of it is done."""
        now = time.monotonic()
        lag = max(0, decided - last)
        began = None if lag > CLOSE else (now if self.began is None else self.began)
        behind = None if lag == 0 else (now if self.behind is None or last > self.last else self.behind)
        return replace(self, lag=lag, began=began, behind=behind, last=last, count=self.count + 1)

    @property
    def idle_seconds(self) -> float:
        """For how long it got on by nothing though there was something."""
        return 0.0 if self.behind is None else round(time.monotonic() - self.behind, 3)

    @property
    def is_ready(self) -> bool:
        return self.began is not None and time.monotonic() - self.began >= STABLE_SECONDS


@dataclass(frozen=True)
class Told:
    """What a replica told of its progress."""

    count: int
    ready: bool
    hydrated: bool
    """Whether it has run its first transaction: until then it has no views."""
    lag_transactions: int
    lag_seconds: float
    """How much later the last transaction that was decided is than the last one that it ran."""
    outputs: Mapping[str, int]
    """The last transaction that it computed for each."""

    @property
    def encoded(self) -> bytes:
        """For those who would promote it."""
        return json.dumps(asdict(self)).encode()

    def __str__(self) -> str:
        if not self.hydrated:
            return "it computes its views from what the tables have"
        behind = f"it is {self.lag_transactions} transactions and {self.lag_seconds:.1f} seconds behind"
        return f"{behind}; its outputs are at transaction {min(self.outputs.values(), default=-1)}"


def progress_key(group: str, generation: int, member: str) -> str:
    """Where a replica tells its progress."""
    return f"{group}/generations/{generation}/{member}"


def forget_progress(place: Place, group: str, generation: int) -> None:
    """Delete what was told by replicas of a generation that decides, and of those before it."""
    told = place.blobs.keys(f"{group}/generations")
    place.blobs.delete([key for key in told if int(key.split("/")[-2]) <= generation])


def promote(config: GroupConfig, generation: int, *, force: bool = False) -> int:
    """Let a generation take over, if a replica of it is ready or by `force`; returns the one that ran.

    The generation before may not decide or write anything from then on.
    """
    place = config.place.opened()
    try:
        shard = Shard.open(place, f"{config.name}/binding")
        before = shard.machine.state.fence
        if generation <= before.generation:
            raise StateError(
                f"generation {before.generation} of the group {config.name} runs; only a later one can be"
                " promoted"
            )
        if not force:
            _refuse_unready(place, config.name, generation)
        shard.raise_fence(Fence(generation, before.epoch + 1))
        failpoint("replica.promoted")
        return before.generation
    except ShardError as error:
        raise StateError(f"generation {generation} was not promoted: {error}") from error
    finally:
        place.close()


def _refuse_unready(place: Place, group: str, generation: int) -> None:
    before = _told(place, group, generation)
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        found = _told(place, group, generation)
        live = [told for key, told in found.items() if key not in before or told.count > before[key].count]
        if any(told.ready and told.hydrated for told in live):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if not live:
        raise StateError(
            f"no replica of generation {generation} of the group {group} runs: start one, and wait until it"
            " is ready; or use force"
        )
    best = min(live, key=lambda told: (not told.hydrated, told.lag_transactions))
    raise StateError(
        f"generation {generation} of the group {group} is not ready: {best}. Wait until it has caught up, or"
        " use force."
    )


def _told(place: Place, group: str, generation: int) -> dict[str, Told]:
    found = {}
    for key in place.blobs.keys(progress_key(group, generation, "").rstrip("/")):
        data = None if key.endswith(".tmp") else place.blobs.get(key)  # one that is being written, or was
        if data is not None:
            found[key] = Told(**json.loads(data))
    return found
