"""A storage directory that an earlier version wrote opens in this one, or is refused by name.

The fixtures are written by `python -m tests.test_storage_format VERSION`, once for each format.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import StorageError

FIXTURES = Path(__file__).parent / "fixtures" / "storage"

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, g STRING, n DECIMAL(10, 2));
CREATE TABLE names (g STRING, name STRING);
CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s, max(n) AS m FROM t GROUP BY g;
CREATE VIEW named AS SELECT x.name, s.c FROM sums s LEFT JOIN names x ON s.g = x.g;
"""


def write(directory: Path) -> None:
    """Two checkpoints, one of them named, merged batches, and a journal that goes on."""
    config = {"workers": 1, "fault_tolerance": {"checkpoint_interval_secs": None}}
    pipeline = penstock.Pipeline("format", PROGRAM, storage=directory, config=config)
    pipeline.start()
    pipeline.insert("names", [{"g": g, "name": f"group {g}"} for g in "ab"])
    for number in range(10):
        pipeline.insert("t", [{"id": number * 3 + i, "g": "abc"[i], "n": number} for i in range(3)])
        pipeline.flush()
        if number == 4:
            pipeline.checkpoint("middle")
    pipeline.checkpoint()
    pipeline.delete("t", [{"id": 0}])
    pipeline.flush()
    pipeline.start_transaction()
    pipeline.insert("t", [{"id": 100, "g": "a", "n": 1}])
    pipeline.flush()
    pipeline.kill()
    (directory / "LOCK").unlink()


@pytest.mark.parametrize("fixture", sorted(FIXTURES.iterdir()), ids=lambda path: path.name)
def test_a_directory_of_an_earlier_version_opens(fixture: Path, tmp_path: Path) -> None:
    shutil.copytree(fixture, tmp_path / "storage")
    config = {"workers": 1, "fault_tolerance": {"verify": "eager"}}
    pipeline = penstock.Pipeline("format", PROGRAM, storage=tmp_path / "storage", config=config)
    pipeline.start()
    try:
        assert pipeline.stats()["views"].keys() == {"sums", "named"}
        found = pipeline.query("SELECT * FROM named ORDER BY name NULLS LAST").to_pylist()
        assert found == [
            {"name": "group a", "c": 9},
            {"name": "group b", "c": 10},
            {"name": None, "c": 10},
        ]
        assert [entry["name"] for entry in pipeline.checkpoints()] == [None, "middle", None][-2:]
        number = pipeline.open_transaction
        assert number is not None, "it is still open"
        pipeline.commit_transaction(number)
        pipeline.flush()
        (row,) = pipeline.query("SELECT c FROM named WHERE name = 'group a'").to_pylist()
        assert row == {"c": 10}
        for entry in pipeline.checkpoints():
            pipeline.verify_checkpoint(entry["id"])
    finally:
        pipeline.kill()


def test_a_directory_from_before_there_were_catalogs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(StorageError, match="was written by an earlier Penstock"):
        penstock.Pipeline("format", PROGRAM, storage=tmp_path).start()


if __name__ == "__main__":
    write(FIXTURES / sys.argv[1])
