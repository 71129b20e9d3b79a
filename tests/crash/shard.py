"""A process that appends to a shard, time after time, what every other such process would append, too.

    python -m tests.crash.shard PLACE UNTIL

It prints a line for each time that it got past. It is stopped, continued and killed by the tests.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from penstock.shard.keeping import Keeper
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.writer import ShardWriter

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])
KEYS = 50
LEASE = 1.0


def changes_at(time: int) -> list[tuple[int, str, int, int]]:
    """Some keys get new values, as (key, value, time, weight)."""
    found = []
    for key in {time % KEYS, (time * 7 + 3) % KEYS}:
        before = [t for t in range(time) if key in {t % KEYS, (t * 7 + 3) % KEYS}]
        found += [(key, f"v{t}", time, -1) for t in before[-1:]]
        found.append((key, f"v{time}", time, 1))
    return found


def table_at(time: int) -> pa.Table:
    columns = [pa.array(column) for column in zip(*changes_at(time), strict=True)]
    return pa.table(columns, names=["key", "value", "_time", "_weight"])


def main(config: str, until: int) -> None:
    place = PlaceConfig.of(json.loads(config)).opened()
    shard = Shard.open(place, "s", SCHEMA, lease=LEASE)
    writer = ShardWriter(shard, "test")
    keeper = Keeper(shard, writer)
    keeper.start()
    time = shard.upper
    while time < until:
        outcome = writer.compare_and_append(table_at(time), time, time + 1)
        if outcome.diverged:
            sys.exit("it diverged")
        time = outcome.upper
        print(time, "appended" if outcome.appended else "overtaken", flush=True)
    keeper.stop()
    writer.close()
    place.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
