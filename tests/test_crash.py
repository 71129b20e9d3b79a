"""A process that is killed in the middle of its work: what was flushed is there when it comes back."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import penstock

PROGRAM = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, n BIGINT);
CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
CREATE VIEW latest AS SELECT g, max(id) AS id FROM t GROUP BY g;
"""

WRITER = textwrap.dedent(
    """
    import sys
    import penstock
    program, storage = sys.argv[1:]
    with penstock.Pipeline("crash", program=program, storage=storage, config={"workers": 1}) as p:
        start = p.query("SELECT coalesce(max(id) + 1, 0) AS n FROM t").to_pylist()[0]["n"]
        for id_ in range(start, 1_000_000):
            p.insert("t", [{"id": id_, "g": id_ % 3, "n": id_}])
            p.flush()
            print(id_, flush=True)
    """
)


def _killed(storage: Path, after: int) -> int:
    """Run the writer, kill it after some rows and at no particular moment; returns the last flushed row."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, PROGRAM, str(storage)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        last = -1
        for _, line in zip(range(after), process.stdout, strict=False):
            last = int(line)
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            last = int(line)
    return last


def test_nothing_flushed_is_lost_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    last = -1
    for rows in (12, 25):
        flushed = _killed(storage, rows)
        assert flushed > last
        last = flushed
    with penstock.Pipeline("crash", program=PROGRAM, storage=storage, config={"workers": 2}) as pipeline:
        ids = [row["id"] for row in pipeline.query("SELECT id FROM t ORDER BY id").to_pylist()]
        # The transaction in flight may have been recorded, and then it took effect on the way back.
        assert ids in (list(range(last + 1)), list(range(last + 2)))
        assert pipeline.stats()["transactions"] == len(ids)
        sums = pipeline.query("SELECT g, c, s FROM sums ORDER BY g").to_pylist()
        groups = [[i for i in ids if i % 3 == g] for g in range(3)]
        assert sums == [{"g": g, "c": len(rows), "s": sum(rows)} for g, rows in enumerate(groups)]
        latest = pipeline.query("SELECT g, id FROM latest ORDER BY g").to_pylist()
        assert latest == [{"g": g, "id": max(rows)} for g, rows in enumerate(groups)]
