"""A process that upserts what it reads of a source into a shard, as every other such process does.

    python -m tests.crash.upsert PLACE UNTIL

It says `ready`, begins when it is told to by a line, and lives on when it is done until its standard input
ends: so tests have it there at the right moment, however slow the machine is. It is stopped, continued and
killed.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.upserting import UpsertWriter

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
KEYS = 20
LEASE = 1.0
AHEAD = 5
"""So many times are read before the shard has them."""
PAUSE_SECONDS = 0.03
"""Between steps, so that there is something left to do for who was stopped."""


def source_at(time_: int) -> tuple[list[tuple[int, str]], list[int]]:
    """New rows and deleted keys; some times have none, and some keys are deleted that are not there."""
    if time_ % 6 == 4:
        return [], []
    rows = [(time_ % KEYS, f"v{time_}"), ((time_ * 7 + 3) % KEYS, f"v{time_ // 2}")]
    return rows, [(time_ * 5 + 1) % KEYS]


def changes_until(until: int) -> list[tuple[int, str, int, int]]:
    """What the shard must get, as (key, value, time, weight), in the order of times, keys and values."""
    found: list[tuple[int, str, int, int]] = []
    state: dict[int, str] = {}
    for time_ in range(until):
        rows, deleted = source_at(time_)
        after = {key: value for key, value in state.items() if key not in deleted} | dict(rows)
        gone = [(key, value, time_, -1) for key, value in state.items() if after.get(key) != value]
        come = [(key, value, time_, 1) for key, value in after.items() if state.get(key) != value]
        found += sorted(gone + come)
        state = after
    return found


def buffer(writer: UpsertWriter, time_: int) -> None:
    """Give a writer what the source has at a time, and say that this is all."""
    rows, deleted = source_at(time_)
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    come = pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.string())})
    writer.buffer(time_, come, pa.table({"key": pa.array(deleted, pa.int64())}))
    writer.seal(time_ + 1)


def main(config: str, until: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    place = PlaceConfig.of(json.loads(config)).opened()
    shard = Shard.open(place, "s", SCHEMA, lease=LEASE)
    with UpsertWriter(shard, ["key"], "test") as writer:
        next_ = writer.resume_upper
        while writer.upper < until:
            while next_ < min(until, writer.upper + AHEAD):
                buffer(writer, next_)
                next_ += 1
            writer.step()
            time.sleep(PAUSE_SECONDS)
        sys.stdin.read()
    place.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
