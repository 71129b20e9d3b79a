"""Somebody who reads a shard all the time, and believes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from penstock.shard.keeping import Keeper
from penstock.shard.reader import Progress, ShardReader
from penstock.shard.rows import TIME, WEIGHT
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig

Row = tuple[Any, ...]


class Follower:
    """Follows a shard whose first column is a key: after each transaction a key has one row, or none."""

    def __init__(
        self, uri: str, name: str, check: Callable[[dict[Any, Row]], None] = lambda rows: None
    ) -> None:
        """`check` is given the rows by key after each transaction."""
        self.rows: dict[Any, Row] = {}
        self.transactions = 0
        """How many brought changes."""
        self.pauses: list[tuple[float, float]] = []
        """When something came, and how long nothing had."""
        self._uri, self._name, self._check = uri, name, check
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._next = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        place = PlaceConfig(self._uri).opened()
        try:
            while not place.log.numbers(self._name):
                if self._stop.wait(0.02):
                    return
            self._follow(Shard.open(place, self._name))
        except BaseException as error:
            self._error = error
        finally:
            place.close()

    def _follow(self, shard: Shard) -> None:
        reader = ShardReader(shard, "test", 0)
        keeper = Keeper(shard, None, [reader])
        keeper.start()
        last = time.monotonic()
        while not self._stop.wait(0.02):
            progress = reader.listen(self._next)
            if progress.upper > self._next:
                self._take(progress)
                self.pauses.append((time.monotonic(), time.monotonic() - last))
                last = time.monotonic()
                reader.downgrade_since(self._next - 1)
        keeper.stop()
        reader.close()

    def _take(self, progress: Progress) -> None:
        assert progress.lower == self._next, "no gap"
        changes = sorted(progress.changes.to_pylist(), key=lambda row: (row[TIME], row[WEIGHT]))
        times = sorted({row[TIME] for row in changes})
        assert not times or (self._next <= times[0] and times[-1] < progress.upper), times
        for at in times:
            for row in (row for row in changes if row[TIME] == at):
                self._change(row.pop(WEIGHT), row)
            self._check(self.rows)
        self.transactions += len(times)
        self._next = progress.upper

    def _change(self, weight: int, row: dict[str, Any]) -> None:
        del row[TIME]
        key, values = next(iter(row.values())), tuple(row.values())
        if weight < 0:
            assert (weight, self.rows.pop(key, None)) == (-1, values), "what was never there is gone"
        else:
            assert (weight, self.rows.setdefault(key, values)) == (1, values), "it is there twice"

    @property
    def values(self) -> dict[Any, Row]:
        """What is known of each key, without the key itself. Raises what was wrong."""
        self._raise()
        return {key: row[1:] for key, row in list(self.rows.items())}

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def longest_pause(self, since: float) -> float:
        return max((pause for at, pause in self.pauses if at >= since), default=0.0)

    def usual_pause(self, until: float) -> float:
        """Between two transactions, on this machine as busy as it was."""
        return median(pause for at, pause in self.pauses if at < until)

    def close(self) -> None:
        """Raises what was wrong."""
        self._stop.set()
        self._thread.join(60)
        self._raise()
