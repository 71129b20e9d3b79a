"""A thousand checkpoints in a row leave nothing behind."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import psutil
import pytest

import penstock

CHECKPOINTS = int(os.environ.get("PENSTOCK_CHECKPOINTS", "1000"))
PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, n BIGINT);
CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s, max(n) AS m FROM t GROUP BY g;
"""


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def needed(storage: Path) -> set[str]:
    """What the catalog leads to."""
    found = {"LOCK", "catalog.json"}
    for entry in json.loads((storage / "catalog.json").read_text())["content"]["checkpoints"]:
        directory = f"checkpoints/{entry['id']}"
        manifest = json.loads((storage / directory / "manifest.json").read_text())["content"]
        found |= {f"{directory}/manifest.json", *(f"{directory}/{name}" for name in manifest["files"])}
        found |= {
            f"batches/{trace}/{name}.arrow" for trace, names in manifest["traces"].items() for name in names
        }
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_checkpoints_leave_nothing_behind(tmp_path: Path) -> None:
    config = {"workers": 1, "fault_tolerance": {"checkpoint_interval_secs": None}}
    pipeline = penstock.Pipeline("many", PROGRAM, storage=tmp_path, config=config)
    pipeline.start()
    process = psutil.Process()
    memory, sizes = [], []
    for number in range(CHECKPOINTS):
        if number % 5 == 0:
            pipeline.insert("t", [{"id": (number * 7 + i) % 500, "g": i % 4, "n": number} for i in range(20)])
            pipeline.flush()
        pipeline.checkpoint()
        if number % (CHECKPOINTS // 10) == 0:
            gc.collect()
            memory.append(process.memory_info().rss)
            sizes.append(len(files(tmp_path)))
    pipeline.stop()
    left = {name for name in files(tmp_path) - needed(tmp_path) if not name.startswith("journal/")}
    assert not left
    assert len([name for name in files(tmp_path) if name.startswith("journal/")]) <= 3
    assert max(sizes[2:]) <= 3 * max(sizes[:3]), "the directory does not grow"
    assert memory[-1] < memory[2] + (64 << 20), "nor does the memory"
    with pipeline:
        (row,) = pipeline.query("SELECT sum(c) AS c FROM sums").to_pylist()
        assert row == {"c": pipeline.stats()["tables"]["t"]["rows"]}
