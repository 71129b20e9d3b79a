"""What was flushed survives a power cut, and a full disk costs no more than the checkpoint under way."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import DamagedError, StorageError
from tests.disks import Act, FailingDisk, ForgetfulDisk, using

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, n BIGINT);
CREATE VIEW total AS SELECT count(*) AS c, sum(n) AS s FROM t;
CREATE VIEW pairs AS SELECT a.id, b.id AS other FROM t a JOIN t b ON a.n = b.n + 1;
"""

Rows = dict[int, int]
Open = Callable[[Path], penstock.Pipeline]


@pytest.fixture
def opened() -> Iterator[Open]:
    """A pipeline on a storage directory, started; checkpoints are taken only when asked for."""
    made: list[penstock.Pipeline] = []

    def making(storage: Path) -> penstock.Pipeline:
        config = {"workers": 1, "fault_tolerance": {"checkpoint_interval_secs": None}}
        made.append(penstock.Pipeline("p", PROGRAM, storage=storage, config=config))
        made[-1].start()
        return made[-1]

    yield making
    for pipeline in made:
        pipeline.kill()


class Life:
    """A pipeline, and the rows that it was told are safe."""

    def __init__(self, pipeline: penstock.Pipeline) -> None:
        self.pipeline = pipeline
        self.rows: Rows = {}
        self._chance = random.Random(4)

    def transact(self, times: int = 1) -> None:
        for _ in range(times):
            changed = {self._chance.randrange(12): self._chance.randrange(6) for _ in range(4)}
            gone = [id_ for id_ in self.rows if id_ not in changed][:1]
            with self.pipeline.transaction():
                self.pipeline.insert("t", [{"id": id_, "n": n} for id_, n in changed.items()])
                self.pipeline.delete("t", [{"id": id_} for id_ in gone])
            self.pipeline.flush()
            self.rows = {id_: n for id_, n in {**self.rows, **changed}.items() if id_ not in gone}


def has(pipeline: penstock.Pipeline, rows: Rows) -> None:
    """The table and the views are what they have to be."""
    found = {row["id"]: row["n"] for row in pipeline.query("SELECT * FROM t").to_pylist()}
    assert found == rows
    total = pipeline.query("SELECT * FROM total").to_pylist()
    assert total == [{"c": len(rows), "s": sum(rows.values()) if rows else None}]
    pairs = {(row["id"], row["other"]) for row in pipeline.query("SELECT * FROM pairs").to_pylist()}
    assert pairs == {(a, b) for a in rows for b in rows if rows[a] == rows[b] + 1}


def goes_on(opened: Open, storage: Path, rows: Rows) -> None:
    """A start finds the rows, and the pipeline can be used and stopped."""
    pipeline = opened(storage)
    has(pipeline, rows)
    pipeline.insert("t", [{"id": 99, "n": 1}])
    pipeline.flush()
    pipeline.stop()


def test_what_was_flushed_survives_a_power_cut_at_any_time(opened: Open, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    cuts: list[tuple[Path, Rows]] = []

    def cut(seed: int | None = None) -> None:
        cuts.append((tmp_path / f"cut-{len(cuts)}", dict(life.rows)))
        forgetful.cut(cuts[-1][0], seed=seed)

    with using(ForgetfulDisk(storage)) as forgetful:
        life = Life(opened(storage))
        life.transact(3)
        cut()  # nothing but the journal
        life.pipeline.checkpoint()
        cut()
        cut(seed=1)
        life.transact(2)
        cut()  # some in the checkpoint, some in the journal
        life.pipeline.checkpoint()
        life.pipeline.checkpoint("named")
        cut(seed=2)
        life.transact(2)
        cut(seed=3)
        life.pipeline.kill()
        forgetful.cut()
    goes_on(opened, storage, life.rows)
    for copy, rows in cuts:
        goes_on(opened, copy, rows)


def test_what_was_flushed_survives_a_power_cut_while_a_checkpoint_is_taken(
    opened: Open, tmp_path: Path
) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    cuts: list[Path] = []
    taking = False

    def after() -> None:
        if taking:
            cuts.append(tmp_path / f"cut-{len(cuts)}")
            forgetful.cut(cuts[-1], seed=len(cuts))

    with using(ForgetfulDisk(storage, after=after)) as forgetful:
        life = Life(opened(storage))
        life.transact(2)
        life.pipeline.checkpoint()
        life.transact(2)
        life.pipeline.checkpoint()
        life.transact(2)
        taking = True
        life.pipeline.checkpoint()  # lets go of the first
        taking = False
        life.pipeline.kill()
    assert len(cuts) > 20
    for copy in cuts[:: len(cuts) // 6]:
        goes_on(opened, copy, life.rows)


@pytest.mark.parametrize("act", [Act.WRITE, Act.SYNC, Act.RENAME])
def test_a_checkpoint_that_the_disk_refuses_costs_no_more_than_itself(
    opened: Open, tmp_path: Path, act: Act
) -> None:
    life = Life(opened(tmp_path / "storage"))
    life.transact()
    refused = 0
    for nth in range(100):
        life.transact()
        with using(FailingDisk(nth, {act})) as failing:
            try:
                life.pipeline.checkpoint()
                succeeded = True
            except StorageError as error:
                succeeded, message = False, str(error)
        status = life.pipeline.stats()["checkpoint"]
        if not failing.failed:
            assert succeeded
            break
        if succeeded:  # it was taken, and old ones could not be let go of, or a directory of one was left
            left = failing.failed[0].path.parent.name == "checkpoints"
            assert left or "No space left" in status["last_error"]
            continue
        refused += 1
        assert "No space left" in message
        assert status["last_error"] == message
        assert life.pipeline.state == "Running"
        if nth % 3 == 0:
            life.transact()
            assert life.pipeline.checkpoint() == life.pipeline.stats()["transactions"]
            assert life.pipeline.stats()["checkpoint"]["last_error"] is None
    assert refused >= 3
    has(life.pipeline, life.rows)
    life.transact()
    life.pipeline.kill()
    goes_on(opened, tmp_path / "storage", life.rows)


def test_a_disk_that_stays_full_stops_no_query_and_loses_nothing(opened: Open, tmp_path: Path) -> None:
    life = Life(opened(tmp_path / "storage"))
    life.transact(2)
    with using(FailingDisk(acts={Act.WRITE}, lasting=True)) as full:
        for _ in range(2):
            with pytest.raises(StorageError, match="No space left"):
                life.pipeline.checkpoint()
        has(life.pipeline, life.rows)
        full.heal()
        life.transact()
        life.pipeline.checkpoint()
    life.pipeline.kill()
    goes_on(opened, tmp_path / "storage", life.rows)


def test_garbage_that_cannot_be_deleted_stops_nothing(opened: Open, tmp_path: Path) -> None:
    life = Life(opened(tmp_path / "storage"))
    with using(FailingDisk(acts={Act.REMOVE}, code=errno.EACCES, lasting=True)) as failing:
        for _ in range(4):
            life.transact(3)
            life.pipeline.checkpoint()
            has(life.pipeline, life.rows)
        assert failing.failed
        assert "Permission denied" in life.pipeline.stats()["checkpoint"]["last_error"]
        life.pipeline.kill()
        pipeline = opened(tmp_path / "storage")
        has(pipeline, life.rows)
        pipeline.kill()
    goes_on(opened, tmp_path / "storage", life.rows)


def test_damage_is_named_when_the_checkpoint_that_the_pipeline_came_from_is_long_gone(
    opened: Open, tmp_path: Path
) -> None:
    life = Life(opened(tmp_path / "storage"))
    life.transact()
    life.pipeline.stop()
    damaged = next((tmp_path / "storage" / "batches" / "table-t").glob("*.arrow"))
    life = Life(opened(tmp_path / "storage"))
    first = life.pipeline.stats()["checkpoint"]["id"]
    for _ in range(3):
        life.pipeline.checkpoint()
    assert not (tmp_path / "storage" / "checkpoints" / first).exists()
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    newest = life.pipeline.stats()["checkpoint"]["id"]
    with pytest.raises(DamagedError) as raised:
        life.pipeline.verify_checkpoint(newest)
    assert len([fault for fault in raised.value.faults if str(damaged) in fault]) == 1
    life.pipeline.kill()
    with pytest.raises(DamagedError, match=damaged.name):
        opened(tmp_path / "storage")


def test_damage_that_nobody_has_met_is_found_before_the_next_checkpoint(opened: Open, tmp_path: Path) -> None:
    life = Life(opened(tmp_path / "storage"))
    life.transact()
    life.pipeline.stop()
    damaged = next((tmp_path / "storage" / "batches" / "table-t").glob("*.arrow"))
    life = Life(opened(tmp_path / "storage"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    listed = [entry["id"] for entry in life.pipeline.checkpoints()]
    with pytest.raises(DamagedError) as raised:
        life.pipeline.checkpoint()
    assert len([fault for fault in raised.value.faults if str(damaged) in fault]) == 1
    assert life.pipeline.state == "Stopped"
    assert [entry["id"] for entry in life.pipeline.checkpoints()] == listed, "none was taken of it"
    with pytest.raises(DamagedError, match=damaged.name):
        life.pipeline.query("SELECT * FROM t")
