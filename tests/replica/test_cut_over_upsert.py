"""Keys of a topic, errors among them, over restarts and over a cut-over to a changed program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from tests.kafka import Kafka
from tests.replica.test_replicas import until
from tests.test_kafka_upsert import Keyed, errors

pytestmark = pytest.mark.xdist_group("kafka")


class Site:
    """A topic, a group that follows it, and what should come of it."""

    def __init__(self, broker: Kafka, root: Path) -> None:
        self.root = root
        self.uri = (root / "shared").as_uri()
        self.keyed = Keyed(broker, root, partitions=2)
        self.rows: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self._made: list[penstock.Pipeline] = []

    def program(self, *, changed: bool) -> str:
        """How often each name is there, in a shard; if it is `changed` twice that, and one view more."""
        shard = {"name": "shard_output", "config": {"uri": self.uri}}
        outs = json.dumps([{"name": "shared", "transport": shard}])
        text = self.keyed.program.replace("VIEW names AS", f"VIEW names WITH ('connectors' = '{outs}') AS")
        text = text.replace("count(*) AS c", f"{2 if changed else 1} * count(*) AS c")
        more = "CREATE MATERIALIZED VIEW lengths AS SELECT id, length(name) AS l FROM t;"
        return text + (more if changed else "")

    def replica(self, storage: str, *, changed: bool = False, **group: Any) -> penstock.Pipeline:
        config = {
            "workers": 1,
            "fault_tolerance": {"checkpoint_interval_secs": None},
            "group": {"uri": self.uri, "lease_seconds": 2, **group},
        }
        program = self.program(changed=changed)
        found = penstock.Pipeline("keyed", program, storage=self.root / storage, config=config)
        self._made.append(found)
        found.start()
        return found

    def send(self, key: Any, value: Any) -> None:
        """Something that means nothing to any row or error."""
        self.keyed.send(key, value)

    def good(self, id_: int, name: str) -> None:
        self.keyed.send({"id": id_}, {"name": name})
        self.errors.pop(id_, None)
        self.rows[id_] = name

    def gone(self, id_: int) -> None:
        self.keyed.send({"id": id_}, None)
        self.errors.pop(id_, None)
        self.rows.pop(id_, None)

    def bad(self, id_: int, text: str) -> None:
        self.keyed.send({"id": id_}, text.encode())
        self.rows.pop(id_, None)
        self.errors[id_] = text

    # -- what there is --------------------------------------------------------------------------

    def settle(self, *pipelines: penstock.Pipeline) -> None:
        """Wait until these have what should be there, and the shard has what should come of it."""
        for pipeline in pipelines:
            until(partial(self._has, pipeline), f"a replica has not: {self.rows}, {self.errors}")
        times = 2 if pipelines[-1].stats()["group"]["running_generation"] else 1
        expected = {name: times * n for name, n in Counter(self.rows.values()).items()}
        until(lambda: self.shard() == expected, f"{expected} is not in the shard")

    def _has(self, pipeline: penstock.Pipeline) -> bool:
        return (table(pipeline), errors(pipeline)) == (self.rows, self.errors)

    def shard(self) -> dict[str, int]:
        """What the shard has; each name once."""
        place = PlaceConfig(self.uri).opened()
        try:
            shard = Shard.open(place, "names")
            upper = shard.upper
            rows = shard.snapshot(upper - 1).to_pylist() if upper else []
        finally:
            place.close()
        assert all(row["_weight"] == 1 for row in rows), rows
        assert len({row["name"] for row in rows}) == len(rows), rows
        return {row["name"]: row["c"] for row in rows}

    def let_go(self, least: int) -> None:
        """Wait until the group has forgotten what its first transactions were made of."""
        place = PlaceConfig(self.uri).opened()
        try:
            binding = Shard.open(place, "keyed/binding")
            until(lambda: binding.since >= least, "nothing is let go of")
        finally:
            place.close()

    def close(self) -> None:
        for pipeline in self._made:
            pipeline.kill()


@pytest.fixture
def site(kafka: Kafka, tmp_path: Path) -> Iterator[Site]:
    found = Site(kafka, tmp_path)
    yield found
    found.close()


def table(pipeline: penstock.Pipeline) -> dict[int, str]:
    return {row["id"]: row["name"] for row in pipeline.query("SELECT id, name FROM t").to_pylist()}


def kept(pipeline: penstock.Pipeline) -> list[tuple[Any, ...]]:
    """Every row and every error, with all that is known of it."""
    rows = pipeline.query("SELECT id, name, n, at FROM t").to_pylist()
    wrong = pipeline.query("SELECT * FROM t_errors").to_pylist()
    return sorted(tuple(str(value) for value in row.values()) for row in [*rows, *wrong])


def nonsense(site: Site) -> None:
    """Keys that mean nothing."""
    site.send(b"nonsense", {"name": "x"})
    site.send({"id": None}, {"name": "x"})
    site.send(None, {"name": "x"})
    site.send(b"nonsense", None)
    site.send(b"nonsense", b"broken")


@pytest.mark.parametrize("hydrated", [True, False], ids=["from what the tables have", "from the beginning"])
def test_the_whole_matrix_through_a_cut_over(site: Site, hydrated: bool) -> None:
    old = site.replica("old")
    new = None if hydrated else site.replica("new", changed=True, generation=1)
    for id_ in range(1, 13):
        site.good(id_, f"{id_ % 5}")  # insert
    site.settle(old)
    site.good(1, "update")
    site.gone(2)
    site.send({"id": 99}, None)  # of an absent key
    site.good(3, "3")  # the same value again
    for id_ in range(4, 13):
        site.bad(id_, f"broken {id_}")
    nonsense(site)
    site.settle(old)
    old.kill()
    old = site.replica("old")
    site.settle(old)
    site.good(2, "reinserted")
    site.good(4, "bad, then good")
    site.gone(5)  # bad, then none
    site.bad(6, "worse")
    site.bad(7, "broken 7")  # the same error again
    site.gone(8)
    site.bad(8, "none, then bad")
    site.settle(old)
    before = kept(old)
    if hydrated:
        site.let_go(3)
    new = new or site.replica("new", changed=True, generation=1)
    site.settle(new)
    assert kept(new) == before
    site.good(6, "while both run")
    site.bad(1, "while both run")
    nonsense(site)
    site.settle(old, new)
    before = kept(old)
    until(lambda: new.stats()["group"]["ready"])
    new.promote()
    until(lambda: old.failure_code == "FENCED")
    site.settle(new)
    assert kept(new) == before, "nothing of it changed"
    old.kill()
    site.good(7, "bad, then good, over the cut-over")
    site.gone(8)  # bad, then none, over the cut-over
    site.gone(8)
    site.bad(9, "worse, over the cut-over")
    site.good(5, "reinserted, over the cut-over")
    site.good(2, "reinserted")
    site.bad(3, "bad, over the cut-over")
    nonsense(site)
    site.settle(new)
    lengths = {row["id"]: row["l"] for row in new.query("SELECT * FROM lengths").to_pylist()}
    assert lengths == {id_: len(name) for id_, name in site.rows.items()}
    before = kept(new)
    new.kill()
    new = site.replica("new", changed=True)
    site.settle(new)
    assert kept(new) == before
    site.good(1, "bad, then good")
    site.gone(3)
    for id_ in range(9, 13):  # 10 to 12 were bad before the first restart, and since
        site.good(id_, "good at last")
    site.settle(new)
    assert errors(new) == {}
