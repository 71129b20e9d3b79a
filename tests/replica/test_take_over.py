"""A new generation dies while it takes over, anywhere, or two of its replicas do it at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.controller import generation as taking_over
from penstock.replica import binding
from penstock.shard import writer
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from tests.replica.follower import Follower
from tests.replica.test_replicas import Site, of, sums, until

POINTS = (
    "replica.caught-up",
    "replica.activated",
    "replica.fenced",
    "binding.uploaded",
    "binding.decided",
    "replica.announced",
    "shard.uploaded/sums",
    "shard.appended/sums",
)


class Fuse:
    """Ends the thread that gets to a failpoint first; the test then kills its pipeline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.burnt = threading.Event()
        self._point = ""
        self._lock = threading.Lock()
        for module in (taking_over, binding, writer):
            monkeypatch.setattr(module, "failpoint", self._failpoint)
        self._hook = threading.excepthook
        monkeypatch.setattr(threading, "excepthook", self._ended)

    def _ended(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            self._hook(args)

    def set(self, point: str) -> None:
        self.burnt.clear()
        self._point = point

    def _failpoint(self, name: str, of: str = "") -> None:
        with self._lock:
            if self._point not in (name, f"{name}/{of}"):
                return
            self._point = ""
        self.burnt.set()
        raise SystemExit


class Chain:
    """Generations that take over from each other: generation n has n + 1 times the sums, and each the same
    counts."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        self.ids: list[int] = []
        self.sums, self.counts = Follower(self.site.uri, "sums"), Follower(self.site.uri, "counts")

    def program(self, generation: int) -> str:
        text = self.site.program().replace("sum(n) AS s", f"sum({generation + 1} * n) AS s")
        text = text.replace('"name": "file"', f'"name": "file {generation}"')
        text = text.replace("out.json", f"out {generation}.json")
        shard = {"name": "shard_output", "config": {"uri": self.site.uri, "name": "counts"}}
        file = {"name": "file_output", "config": {"path": str(self.site.root / "counts.json")}}
        outs = [
            {"name": "counted", "transport": shard},
            {"name": "counts", "transport": file, "format": {"name": "json"}},
        ]
        return f"""{text}
        CREATE MATERIALIZED VIEW counts WITH ('connectors' = '{json.dumps(outs)}') AS
            SELECT g, count(*) AS c FROM t GROUP BY g;
        """

    def start(self, generation: int, storage: str = "") -> penstock.Pipeline:
        found = self.site.replica(
            storage or f"s{generation}", program=self.program(generation), generation=generation
        )
        found.start()
        return found

    def more(self) -> None:
        """A row in a file of its own."""
        number = len(self.ids)
        self.site.lines(f"{number:05}", number)
        self.ids.append(number)

    def settle(self, generation: int) -> None:
        """Wait until all outputs have everything as this generation computes it, once."""
        expected = {g: (c, (generation + 1) * s) for g, (c, s) in of(*self.ids).items()}
        counted = {g: (c,) for g, (c, _) in expected.items()}
        until(lambda: self._shard("sums") == expected, f"the shard has not {expected}")
        until(lambda: self._shard("counts") == counted, f"the shard has not {counted}")
        until(lambda: self._file(f"out {generation}.json") == expected, f"the file has not {expected}")
        until(lambda: self._file("counts.json") == counted, f"the file has not {counted}")

    def _shard(self, name: str) -> dict[str, tuple[int, ...]]:
        return (self.sums if name == "sums" else self.counts).values

    def _file(self, name: str) -> dict[str, tuple[int, ...]]:
        """What its lines come to; each transaction is there once, in order."""
        path = self.site.root / name
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        numbers = [record["_transaction"] for record in records]
        assert numbers == sorted(numbers)
        found: dict[str, tuple[int, ...]] = {}
        for record in sorted(records, key=lambda one: (one["_transaction"], one["_change_type"])):
            row = (record["c"], record["s"]) if "s" in record else (record["c"],)
            if record["_change_type"] == "delete":
                assert found.pop(record["g"]) == row
            else:
                assert found.setdefault(record["g"], row) == row
        return found

    def fences(self) -> set[int]:
        """The generations that may write the shards."""
        place = PlaceConfig(self.site.uri).opened()
        try:
            return {Shard.open(place, name).machine.state.fence.generation for name in ("sums", "counts")}
        finally:
            place.close()

    def close(self) -> None:
        self.site.close()
        self.sums.close()
        self.counts.close()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    found = Chain(tmp_path)
    yield found
    found.close()


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    return Fuse(monkeypatch)


def ready(pipeline: penstock.Pipeline) -> bool:
    return bool(pipeline.stats()["group"]["ready"])


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(1200)
def test_a_crash_anywhere_in_a_take_over(chain: Chain, fuse: Fuse) -> None:
    """Each generation dies while it takes over from the one before, and is started again."""
    old = chain.start(0)
    for _ in range(4):
        chain.more()
    chain.settle(0)
    for generation, point in enumerate(POINTS, 1):
        new = chain.start(generation)
        chain.more()
        until(lambda: ready(new))  # noqa: B023 - it is called at once
        fuse.set(point)
        new.promote()
        assert fuse.burnt.wait(120), f"{point} was never reached"
        new.kill()
        chain.more()
        until(lambda: old.failure_code == "FENCED")  # noqa: B023
        old.kill()
        old = chain.start(generation)
        chain.settle(generation)
        chain.more()
        chain.settle(generation)
        until(lambda: chain.fences() == {generation}, point)  # noqa: B023
        assert sums(old) == {g: (c, (generation + 1) * s) for g, (c, s) in of(*chain.ids).items()}
        print(f"killed at {point}, transaction {old.last_transaction}")


def test_two_of_a_generation_take_over_at_once(chain: Chain, fuse: Fuse) -> None:
    """Whoever is first brings the shard over, and does not get to fence it."""
    old = chain.start(0)
    for _ in range(4):
        chain.more()
    chain.settle(0)
    news = [chain.start(1, storage) for storage in "ab"]
    chain.more()
    until(lambda: all(ready(new) for new in news))
    fuse.set("shard.appended/sums")
    news[0].promote()
    assert fuse.burnt.wait(120)
    until(lambda: old.failure_code == "FENCED")
    chain.more()
    chain.settle(1)
    until(lambda: chain.fences() == {1})
    until(lambda: [new.stats()["group"]["leads"] for new in news].count(True) == 1)
    expected = {g: (c, 2 * s) for g, (c, s) in of(*chain.ids).items()}
    until(lambda: all(sums(new) == expected for new in news))
    for new in news:
        new.kill()
    chain.start(1, "a")
    chain.more()
    chain.settle(1)
