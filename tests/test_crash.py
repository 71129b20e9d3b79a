"""A process that is killed in the middle of its work: what was flushed is there when it comes back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.connectors import create_input, read_split
from penstock.sql import parse_program
from tests.crash import steady
from tests.oracle.history import seed_of_run

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


def _expected(rows: int) -> list[dict[str, int]]:
    """What `sums` comes to, from the same rows read at once."""
    table = parse_program(steady.program(rows, 1, 1, "out")).tables[0]
    config = json.loads(json.dumps(table.connectors[0].config))
    del config["transport"]["config"]["plan"][0]["rate"]
    source = create_input(replace(table.connectors[0], config=config), table)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    groups: dict[int, list[int]] = {}
    while splits := source.poll(rows):
        for split in splits:
            for batch in read_split(split, schema):
                for row in batch.to_pylist():
                    groups.setdefault(row["id"] % 5, []).append(row["n"])
    return [{"g": g, "c": len(n), "s": sum(n), "m": max(n)} for g, n in sorted(groups.items())]


CYCLES = int(os.environ.get("PENSTOCK_KILLS", "15"))


@pytest.mark.slow(minutes=4)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("rows", "rate", "batch"), [(15_000, 800, 100_000), (1_000, 60, 4)], ids=["steady", "few"]
)
def test_fifteen_kills_lose_nothing_and_repeat_nothing(
    tmp_path: Path, rows: int, rate: int, batch: int
) -> None:
    chance = random.Random(seed_of_run())
    out = tmp_path / "out.jsonl"
    last = 0
    for cycle in range(CYCLES + 1):
        workers = 2 if cycle < CYCLES - 3 else 4  # another number of partitions
        arguments = [str(tmp_path / "storage"), str(workers), str(rows), str(rate), str(batch), str(out)]
        with subprocess.Popen(
            [sys.executable, "-m", "tests.crash.steady", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()[-3000:]
            back = json.loads(line)
            assert back["state"] == "Running"
            assert back["last"] >= last, "numbers go on"
            last = back["last"]
            if cycle < CYCLES:
                time.sleep(chance.uniform(0.05, 1.5))
                process.send_signal(signal.SIGKILL)
                continue
            found = json.loads(process.stdout.readline())
            assert process.wait() == 0
    assert found["sums"] == _expected(rows)
    net: Counter[tuple[int, ...]] = Counter()
    numbers = []
    for text in out.read_text().splitlines():
        change = json.loads(text)
        numbers.append(change["_transaction"])
        sign = 1 if change["_change_type"] == "insert" else -1
        net[change["g"], change["c"], change["s"], change["m"]] += sign
    assert numbers == sorted(numbers)
    assert +net == Counter((row["g"], row["c"], row["s"], row["m"]) for row in _expected(rows))
    assert min(net.values()) >= 0, "a change was written twice"
