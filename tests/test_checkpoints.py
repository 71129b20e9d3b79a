"""Checkpoints as a user sees them: names, going back, damage, and outputs that are slow."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from penstock.controller.outputs import MAX_WAITING
from penstock.errors import DamagedError, StateError, StorageError

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, n BIGINT);
CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s, max(n) AS m FROM t GROUP BY g;
"""

Open = Callable[..., penstock.Pipeline]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def opened(storage: Path) -> Iterator[Open]:
    """A pipeline on the same storage, not started."""
    made: list[penstock.Pipeline] = []

    def opening(program: str = PROGRAM, **fault_tolerance: Any) -> penstock.Pipeline:
        for pipeline in made:
            pipeline.kill()
        config = {"workers": 1, "fault_tolerance": {"checkpoint_interval_secs": None, **fault_tolerance}}
        made.append(penstock.Pipeline("p", program, storage=storage, config=config))
        return made[-1]

    yield opening
    for pipeline in made:
        pipeline.kill()


def insert(pipeline: penstock.Pipeline, *numbers: int) -> None:
    """Each number is a transaction of a few rows."""
    for number in numbers:
        pipeline.insert("t", [{"id": number * 10 + i, "g": i, "n": number} for i in range(4)])
        pipeline.flush()


def start_and_insert(pipeline: penstock.Pipeline) -> None:
    pipeline.start()
    insert(pipeline, 4)


def sums(pipeline: penstock.Pipeline) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in pipeline.query("SELECT * FROM sums ORDER BY g").to_pylist()]


def expected(*numbers: int) -> list[tuple[int, ...]]:
    return [(g, len(numbers), sum(numbers), max(numbers)) for g in range(4)]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in directory.rglob("*")
        if p.is_file() and p.name not in ("LOCK", "catalog.json")
    }


def listed(storage: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("list", str(storage), "--json").stdout)
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["checkpoint", *arguments])


def flip(path: Path) -> None:
    """Change one bit in the middle of a file; its size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def batches(storage: Path, entry: dict[str, Any]) -> list[Path]:
    manifest = json.loads((storage / "checkpoints" / entry["id"] / "manifest.json").read_text())["content"]
    return [
        storage / "batches" / trace / f"{name}.arrow"
        for trace, names in manifest["traces"].items()
        for name in names
    ]


# -- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def two(opened: Open, storage: Path) -> list[dict[str, Any]]:
    """Two checkpoints, after transactions 1 and 2, and a third transaction in the journal."""
    pipeline = opened()
    pipeline.start()
    insert(pipeline, 1)
    pipeline.checkpoint()
    insert(pipeline, 2)
    pipeline.checkpoint()
    insert(pipeline, 3)
    pipeline.kill()
    found = listed(storage)
    assert [entry["transaction"] for entry in found] == [1, 2]
    return found


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])
def test_a_flipped_bit_in_a_batch_is_found_before_it_matters(
    opened: Open, storage: Path, two: list[dict[str, Any]], eager: bool
) -> None:
    shared = set(batches(storage, two[0]))
    own = [path for path in batches(storage, two[1]) if path not in shared]
    for path in own:
        flip(path)
    if not eager:
        with pytest.raises(DamagedError) as raised:
            start_and_insert(opened())
        assert all(str(path) in str(raised.value) for path in own), "all of them are listed"
        before = contents(storage / "checkpoints") | contents(storage / "batches")
        assert all(before[str(path.relative_to(storage / "batches"))] == path.read_bytes() for path in own)
    pipeline = opened(verify="eager" if eager else "lazy")
    pipeline.start()  # from the older one, with nothing lost
    assert sums(pipeline) == expected(1, 2, 3)
    passed = pipeline.stats()["checkpoint"]["passed_over"]
    assert all(any(str(path) in fault for fault in passed) for path in own)
    insert(pipeline, 4)
    pipeline.checkpoint()
    pipeline.checkpoint()
    assert sums(pipeline) == expected(1, 2, 3, 4)
    pipeline.stop()
    assert run("verify", str(storage)).exit_code == 0, "the damaged one went away in time"


@pytest.mark.parametrize("lost", [False, True], ids=["flipped", "missing"])
def test_damage_that_verifying_finds_gets_into_no_new_checkpoint(
    opened: Open, storage: Path, two: list[dict[str, Any]], lost: bool
) -> None:
    pipeline = opened()
    pipeline.start()
    insert(pipeline, 4)
    pipeline.checkpoint()
    newest = listed(storage)[-1]
    shared = set(batches(storage, listed(storage)[0]))
    for path in batches(storage, newest):
        if path not in shared:
            path.unlink() if lost else flip(path)
    with pytest.raises(DamagedError, match="cannot go on"):
        pipeline.verify_checkpoint(newest["id"])
    assert pipeline.state == "Stopped"
    with pytest.raises(StateError, match="no checkpoint can be taken"):
        pipeline.checkpoint()
    pipeline = opened()
    pipeline.start()
    assert sums(pipeline) == expected(1, 2, 3, 4), "from an older one, with nothing lost"


def test_damage_that_only_a_checkpoint_has_stops_nothing(
    opened: Open, storage: Path, two: list[dict[str, Any]]
) -> None:
    pipeline = opened()
    pipeline.start()
    flip(storage / "checkpoints" / two[0]["id"] / "state.json")
    with pytest.raises(DamagedError):
        pipeline.verify_checkpoint(two[0]["id"])
    insert(pipeline, 4)
    assert sums(pipeline) == expected(1, 2, 3, 4)


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_random(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


DAMAGES = [damage_missing, damage_truncated, damage_random, flip]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["state.json", "manifest.json", "batch"])
def test_both_checkpoints_damaged_are_refused_with_every_file(
    opened: Open, storage: Path, two: list[dict[str, Any]], which: str, damage: Callable[[Path], None]
) -> None:
    kept = contents(storage)
    if which == "batch":
        paths = [batches(storage, entry)[0] for entry in two]
    else:
        paths = [storage / "checkpoints" / entry["id"] / which for entry in two]
    for path in dict.fromkeys(paths):
        damage(path)
    before = contents(storage)
    with pytest.raises(DamagedError) as raised:
        opened(verify="eager").start()
    assert all(str(path) in str(raised.value) for path in paths)
    assert "Nothing was changed or deleted" in str(raised.value)
    assert contents(storage) == before
    for path in paths:  # put back, it goes on
        path.write_bytes(kept[str(path.relative_to(storage))])
    pipeline = opened(verify="eager")
    pipeline.start()
    assert sums(pipeline) == expected(1, 2, 3)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["state.json", "manifest.json"])
def test_a_damaged_newest_checkpoint_is_passed_over(
    opened: Open, storage: Path, two: list[dict[str, Any]], which: str, damage: Callable[[Path], None]
) -> None:
    path = storage / "checkpoints" / two[1]["id"] / which
    damage(path)
    pipeline = opened()
    pipeline.start()
    assert sums(pipeline) == expected(1, 2, 3)
    assert any(str(path) in fault for fault in pipeline.stats()["checkpoint"]["passed_over"])


def test_clean_up_deletes_nothing_while_a_kept_manifest_cannot_be_read(
    opened: Open, storage: Path, two: list[dict[str, Any]]
) -> None:
    pipeline = opened()
    pipeline.start()
    flip(storage / "checkpoints" / two[1]["id"] / "manifest.json")
    before = contents(storage)
    pipeline.checkpoint()
    assert "manifest.json is damaged" in pipeline.stats()["checkpoint"]["last_error"]
    after = contents(storage)
    assert all(after[name] == content for name, content in before.items())
    insert(pipeline, 4)
    assert sums(pipeline) == expected(1, 2, 3, 4), "it goes on"
    pipeline.checkpoint()
    assert pipeline.stats()["checkpoint"]["last_error"] is None
    assert not (storage / "checkpoints" / two[1]["id"]).exists()


# -- the catalog ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["missing", "empty", "garbage", "future"])
def test_a_catalog_that_cannot_be_read_is_refused_and_repaired(
    opened: Open, storage: Path, two: list[dict[str, Any]], what: str
) -> None:
    catalog = storage / "catalog.json"
    kept = catalog.read_bytes()
    match what:
        case "missing":
            catalog.unlink()
        case "empty":
            catalog.write_bytes(b"")
        case "garbage":
            damage_random(catalog)
        case "future":
            catalog.write_bytes(kept.replace(b'"version": 1', b'"version": 9'))
    before = contents(storage)
    with pytest.raises(StorageError, match=r"catalog\.json"):
        opened().start()
    assert contents(storage) == before
    if what == "future":
        catalog.write_bytes(kept)
    else:
        done = run("repair", str(storage))
        assert done.exit_code == 0, done.output
        assert [entry["id"] for entry in listed(storage)] == [entry["id"] for entry in two]
    pipeline = opened()
    pipeline.start()
    assert sums(pipeline) == expected(1, 2, 3)


# -- names, and going back ------------------------------------------------------------------------


def test_a_named_checkpoint_is_kept_and_can_be_gone_back_to(opened: Open, storage: Path) -> None:
    pipeline = opened()
    pipeline.start()
    insert(pipeline, 1)
    assert pipeline.checkpoint("before") == 1
    with pytest.raises(StateError, match="there is a checkpoint before already"):
        pipeline.checkpoint("before")
    for number in range(2, 6):
        insert(pipeline, number)
        pipeline.checkpoint()
    pipeline.stop()
    assert [entry["name"] for entry in listed(storage)] == ["before", None, None]
    assert "before" in run("list", str(storage)).stdout
    done = run("restore", str(storage), "--from", "before")
    assert done.exit_code == 0, done.output
    assert "after transaction 1" in done.stdout
    assert [entry["aside"] for entry in listed(storage)] == [True, True, True, False]
    pipeline = opened()
    pipeline.start()
    assert sums(pipeline) == expected(1)
    assert pipeline.stats()["transactions"] == 1
    insert(pipeline, 7)
    pipeline.stop()
    newest = [entry for entry in listed(storage) if entry["transaction"] == 5][-1]
    assert run("restore", str(storage), "--from", newest["id"]).exit_code == 0
    pipeline = opened()
    pipeline.start()
    assert sums(pipeline) == expected(1, 2, 3, 4, 5), "what was put aside is still there"
    pipeline.stop()
    for entry in [entry for entry in listed(storage) if entry["aside"]]:
        assert run("delete", str(storage), entry["id"]).exit_code == 0
    assert not any(entry["aside"] for entry in listed(storage))
    assert run("verify", str(storage)).exit_code == 0
    pipeline = opened()
    pipeline.start()
    assert sums(pipeline) == expected(1, 2, 3, 4, 5)


def test_the_command_line_says_what_is_wrong(opened: Open, storage: Path, two: list[dict[str, Any]]) -> None:
    assert "holds no pipeline" not in run("list", str(storage)).output
    wrong = run("restore", str(storage), "--from", "nowhere")
    assert wrong.exit_code == 1
    assert "no checkpoint" in wrong.stderr
    created = run("create", str(storage), "--name", "x")
    assert created.exit_code == 1
    assert "Run the program and stop it" in created.stderr.replace("\n", " ")
    pipeline = opened()
    pipeline.start()
    busy = run("verify", str(storage))
    assert busy.exit_code == 1
    assert "is in use by process" in busy.stderr
    pipeline.stop()
    created = run("create", str(storage), "--name", "x")
    assert created.exit_code == 0, created.output
    assert listed(storage)[-1]["name"] == "x"
    newest = run("delete", str(storage), "x")
    assert newest.exit_code == 1
    assert "is not deleted" in newest.stderr
    flip(batches(storage, listed(storage)[-1])[0])
    damaged = run("verify", str(storage), "x", "--json")
    assert damaged.exit_code == 1
    assert json.loads(damaged.stdout)[0]["faults"]
    assert "Traceback" not in damaged.output


# -- outputs --------------------------------------------------------------------------------------


def test_an_output_that_hangs_does_not_keep_a_checkpoint_from_being_taken(opened: Open) -> None:
    answers, gone = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(transaction: int, changes: pa.Table) -> None:
        answers.wait()
        if gone.is_set():
            raise ConnectionError("its process was killed")
        seen.append(transaction)

    pipeline = opened()
    pipeline.on_change("sums", slow)
    pipeline.start()
    for number in range(1, 6):
        pipeline.insert("t", [{"id": number, "g": 0, "n": number}])
        while pipeline.stats()["transactions"] < number:
            time.sleep(0.01)
    assert MAX_WAITING > 5
    assert pipeline.checkpoint() == 5
    gone.set()
    answers.set()
    pipeline.kill()
    gone.clear()
    assert not seen
    pipeline = opened()
    pipeline.on_change("sums", slow)
    pipeline.start()
    pipeline.flush()
    assert seen == [1, 2, 3, 4, 5], "what it did not get then it gets now"


def test_a_checkpoint_has_the_configuration_it_was_taken_with(opened: Open, storage: Path) -> None:
    opened().start()
    pipeline = opened(retention=3)
    pipeline.start()
    pipeline.checkpoint()
    state = storage / "checkpoints" / listed(storage)[-1]["id"] / "state.json"
    assert json.loads(state.read_text())["content"]["configuration"]["fault_tolerance"]["retention"] == 3


def test_settings_are_checked() -> None:
    for config, message in [
        ({"checkpoint_interval_secs": 0}, "above 0, or null"),
        ({"retention": 0}, "at least 1"),
        ({"verify": "sometimes"}, "one of lazy, eager"),
        ({"interval": 3}, "unknown setting fault_tolerance.interval"),
    ]:
        with pytest.raises(StateError, match=message):
            penstock.Pipeline("p", PROGRAM, config={"fault_tolerance": config})
