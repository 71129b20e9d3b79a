"""`shard_output` and `shard_input`: one pipeline writes, others read, each at its own pace, exactly once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.connectors.shard import told
from penstock.errors import (
    ConnectorError,
    DamagedError,
    DataExpiredError,
    LeaseExpiredError,
    ShardError,
    TimeGoneError,
    UnreachableError,
)
from penstock.shard.keeping import Keeper
from penstock.shard.shard import Shard
from penstock.shard.stores.place import PlaceConfig
from penstock.shard.writer import ShardWriter

NEVER = {"fault_tolerance": {"checkpoint_interval_secs": None}}


def connector(called: str, transport: str, **config: Any) -> str:
    return json.dumps([{"name": called, "transport": {"name": transport, "config": config}}])


class Site:
    """A place for shards, a pipeline that writes and one that reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = PlaceConfig((root / "shards").as_uri())
        self._running: list[penstock.Pipeline] = []

    def writer(self, name: str = "writer", **config: Any) -> penstock.Pipeline:
        out = connector("out", "shard_output", **{"uri": self.place.uri, "name": "sums", **config})
        program = f"""
        CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, n BIGINT);
        CREATE TABLE other (x INT);
        CREATE MATERIALIZED VIEW sums WITH ('connectors' = '{out}') AS
            SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
        """
        return self._made(name, program)

    def reader(self, name: str = "reader", key: bool = False, **config: Any) -> penstock.Pipeline:
        read = connector("in", "shard_input", **{"uri": self.place.uri, "name": "sums", **config})
        keyed = ", PRIMARY KEY (g)" if key else ""
        program = f"""
        CREATE TABLE sums (g STRING NOT NULL, c BIGINT, s BIGINT{keyed}) WITH ('connectors' = '{read}');
        CREATE MATERIALIZED VIEW total AS SELECT sum(c) AS c, sum(s) AS s, count(*) AS groups FROM sums;
        """
        return self._made(name, program)

    def _made(self, name: str, program: str) -> penstock.Pipeline:
        found = penstock.Pipeline(name, program=program, storage=self.root / name, config=NEVER)
        self._running.append(found)
        return found

    def shard(self) -> Shard:
        return Shard.open(self.place.opened(), "sums")

    def close(self) -> None:
        for pipeline in self._running:
            pipeline.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.05)


def why_it_failed(reader: penstock.Pipeline) -> str:
    eventually(lambda: reader.stats()["inputs"]["in"]["status"] == "failed")
    return str(reader.stats()["inputs"]["in"]["last_error"])


def put(pipeline: penstock.Pipeline, *rows: tuple[int, str, int]) -> None:
    pipeline.insert("t", [{"id": id_, "g": g, "n": n} for id_, g, n in rows])
    pipeline.flush()


def total(pipeline: penstock.Pipeline) -> tuple[Any, ...]:
    (row,) = pipeline.query("SELECT c, s, groups FROM total").to_pylist()
    return tuple(row.values())


def test_one_writes_and_two_read(site: Site) -> None:
    writer = site.writer()
    writer.start()
    put(writer, (1, "a", 1), (2, "b", 2))
    first = site.reader("first")
    first.start()
    eventually(lambda: total(first) == (2, 3, 2))
    put(writer, (1, "a", 10), (3, "c", 3))
    eventually(lambda: total(first) == (3, 15, 3))
    second = site.reader("second", key=True)
    second.start()
    eventually(lambda: total(second) == (3, 15, 3))
    writer.delete("t", [{"id": 2}])
    writer.flush()
    for reader in (first, second):
        eventually(lambda reader=reader: total(reader) == (2, 13, 2))  # type: ignore[misc]
    found = counted_sums(site)
    assert found == {("a", 1, 10): 1, ("c", 1, 3): 1}
    stats = first.stats()["inputs"]["in"]
    eventually(lambda: first.stats()["inputs"]["in"]["frontier"] == writer.last_transaction + 1)
    assert stats["shard"] == "sums"


def counted_sums(site: Site) -> dict[tuple[Any, ...], int]:
    shard = site.shard()
    rows = shard.snapshot(shard.upper - 1).to_pylist()
    return {(row["g"], row["c"], row["s"]): row["_weight"] for row in rows}


def test_transactions_that_do_not_change_the_view_move_the_upper(site: Site) -> None:
    writer = site.writer()
    writer.start()
    put(writer, (1, "a", 1))
    for x in range(5):
        writer.insert("other", [{"x": x}])
        writer.flush()
    eventually(lambda: site.shard().upper == writer.last_transaction + 1)
    assert writer.last_transaction >= 6


def test_both_are_killed_and_go_on(site: Site) -> None:
    writer, reader = site.writer(), site.reader()
    writer.start()
    put(writer, (1, "a", 1))
    reader.start()
    eventually(lambda: total(reader) == (1, 1, 1))
    put(writer, (2, "a", 2))
    eventually(lambda: total(reader) == (2, 3, 1))
    writer.kill()
    reader.kill()
    writer = site.writer()
    writer.start()
    put(writer, (3, "b", 3))
    shard = site.shard()
    keeper = Keeper(shard, ShardWriter(shard, "test"))
    for _ in range(3):
        keeper.keep()
    assert shard.since < shard.upper - 2, "what the reader may have to read again is held back"
    reader = site.reader()
    reader.start()
    eventually(lambda: total(reader) == (3, 6, 2))
    reader.checkpoint()
    writer.stop()
    put_after = site.writer()
    put_after.start()
    put(put_after, (4, "c", 4))
    eventually(lambda: total(reader) == (4, 10, 3))


def test_checkpoints_let_go_of_what_was_held_back(site: Site) -> None:
    writer, reader = site.writer(), site.reader()
    writer.start()
    reader.start()
    for n in range(1, 5):
        put(writer, (n, "a", n))
        eventually(lambda n=n: total(reader)[0] == n)  # type: ignore[misc]
        reader.checkpoint()
    eventually(lambda: min(r.since for r in site.shard().machine.state.readers.values()) > 0)
    reader.kill()
    reader = site.reader()
    reader.start()
    eventually(lambda: total(reader) == (4, 10, 1))


def test_a_reader_that_was_away_for_too_long_says_so(site: Site) -> None:
    writer, reader = site.writer(), site.reader(lease_seconds=1)
    writer.start()
    put(writer, (1, "a", 1))
    reader.start()
    eventually(lambda: total(reader) == (1, 1, 1))
    reader.checkpoint()
    reader.kill()
    shard = site.shard()
    shard.lease = 0.5
    keeper = Keeper(shard, ShardWriter(shard, "test"))
    for n in range(2, 12):
        put(writer, (n, "a", n))
    for _ in range(5):  # one that looks too seldom begins to wait anew
        keeper.keep()
        time.sleep(0.4)
    reader = site.reader()
    reader.start()
    assert "away for longer than 'lease_seconds'" in why_it_failed(reader)


def test_a_reader_that_comes_before_its_writer_waits(site: Site) -> None:
    reader = site.reader()
    reader.start()
    eventually(lambda: reader.stats()["inputs"]["in"]["status"] == "retrying")
    assert "there is no shard sums" in reader.stats()["inputs"]["in"]["last_error"]
    writer = site.writer()
    writer.start()
    put(writer, (1, "a", 1))
    eventually(lambda: total(reader) == (1, 1, 1))


def test_another_pipeline_may_not_write_there(site: Site) -> None:
    writer = site.writer()
    writer.start()
    put(writer, (1, "a", 1))
    writer.stop()
    other = site.writer("other")
    with pytest.raises(ConnectorError, match="has the transactions of another pipeline"):
        other.start()


def test_a_shard_that_was_deleted(site: Site) -> None:
    writer, reader = site.writer(), site.reader()
    writer.start()
    put(writer, (1, "a", 1))
    reader.start()
    eventually(lambda: total(reader) == (1, 1, 1))
    writer.kill()
    reader.kill()
    shutil.rmtree(site.root / "shards")
    shutil.rmtree(site.root / "writer")
    writer = site.writer()
    writer.start()
    put(writer, (1, "a", 1))
    reader = site.reader()
    reader.start()
    assert "deleted and made anew" in why_it_failed(reader)


def test_what_the_errors_of_a_shard_mean_for_a_pipeline() -> None:
    def meant(error: Exception) -> type[Exception]:
        with pytest.raises(ConnectorError) as caught, told("c"):
            raise error
        return caught.type

    assert meant(LeaseExpiredError("a writer", passing=True)) is UnreachableError
    assert meant(LeaseExpiredError("a reader")) is DataExpiredError
    assert meant(TimeGoneError("a time")) is DataExpiredError
    assert meant(ShardError("no answer", passing=True)) is UnreachableError
    assert meant(ShardError("refused")) is ConnectorError
    assert meant(DamagedError("a part")) is ConnectorError


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "the field 'uri' is missing"),
        ({"uri": "gs://x"}, "is no place for shards"),
        ({"uri": "/x", "name": "../x"}, "name: expected letters"),
        ({"uri": "/x", "log_uri": "mysql://x"}, "no database of kind"),
        ({"uri": "s3://x", "access_key": "k"}, "go together"),
        (
            {"uri": "s3://x", "access_key": "k", "secret_key": "hunter22"},
            "a secret must not stand in a program",
        ),
        ({"uri": "/x", "path": "y"}, "unknown field 'path'"),
    ],
)
def test_what_is_wrong_with_a_configuration(config: dict[str, Any], message: str) -> None:
    read = connector("in", "shard_input", **config)
    program = f"CREATE TABLE t (a INT) WITH ('connectors' = '{read}'); CREATE VIEW v AS SELECT * FROM t;"
    with pytest.raises(ConnectorError, match=message):
        penstock.Pipeline("p", program=program).start()


def test_columns_that_the_shard_does_not_have(site: Site) -> None:
    writer = site.writer()
    writer.start()
    put(writer, (1, "a", 1))
    read = connector("in", "shard_input", uri=site.place.uri, name="sums")
    program = f"CREATE TABLE t (a INT) WITH ('connectors' = '{read}'); CREATE VIEW v AS SELECT * FROM t;"
    reader = penstock.Pipeline("p", program=program, storage=site.root / "p")
    site._running.append(reader)
    reader.start()
    assert "has no column 'a'; it has: g, c, s" in why_it_failed(reader)


def chained(site: Site, storage: Path | None, follow: bool = False) -> penstock.Pipeline:
    """It reads a file, and writes a shard of the sums."""
    (site.root / "in.json").write_text("".join(f'{{"g": "{g}", "n": {n}}}\n' for n, g in enumerate("aab")))
    source = {"name": "file_input", "config": {"path": str(site.root / "in.json"), "follow": follow}}
    format_ = {"name": "json", "config": {"update_format": "raw"}}
    read = json.dumps([{"name": "file", "transport": source, "format": format_}])
    out = connector("out", "shard_output", uri=site.place.uri, name="sums")
    program = f"""
    CREATE TABLE t (g STRING, n BIGINT) WITH ('connectors' = '{read}');
    CREATE MATERIALIZED VIEW sums WITH ('connectors' = '{out}') AS
        SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
    """
    found = penstock.Pipeline("chained", program=program, storage=storage)
    site._running.append(found)
    return found


def test_what_reads_a_pipeline_that_ended_for_good_ends_too(site: Site) -> None:
    writer = chained(site, None)
    writer.start()
    reader = site.reader()
    reader.start()
    assert writer.wait(240)
    eventually(lambda: total(reader) == (3, 3, 2))
    assert not reader.inputs_ended, "rows could still be inserted"
    writer.stop()
    assert reader.wait(240)
    assert total(reader) == (3, 3, 2)
    late = site.reader("late")
    late.start()
    assert late.wait(240)
    assert total(late) == (3, 3, 2)
    reader.stop()
    reader = site.reader()
    reader.start()
    assert reader.wait(240)


@pytest.mark.parametrize("why", ["it has a directory", "its input goes on", "it was killed"])
def test_what_may_go_on_or_is_not_whole_is_not_closed(site: Site, why: str) -> None:
    storage = site.root / "chained" if why == "it has a directory" else None
    writer = chained(site, storage, follow=why == "its input goes on")
    writer.start()
    eventually(lambda: writer.stats()["tables"]["t"]["rows"] == 3)
    if why != "its input goes on":
        assert writer.wait(240)
    writer.flush()
    if why == "it was killed":
        writer.kill()
    else:
        writer.stop()
    assert not site.shard().machine.refresh().closed
    if storage is not None:
        writer.start()
        assert writer.wait(240)
