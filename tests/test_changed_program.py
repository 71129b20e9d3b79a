"""Another program on the same storage: what is unchanged keeps its state, the rest is filled from it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.controller.checkpoints import Policy
from penstock.controller.opening import Opening
from penstock.controller.storage import Storage
from penstock.errors import DamagedError, EvaluationError, PenstockError, StateError, StorageError
from penstock.sql import parse_program

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, n BIGINT);
CREATE TABLE names (g INT PRIMARY KEY, name STRING);
"""
SUMS = "CREATE VIEW sums AS SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;"
LARGE = "CREATE VIEW large AS SELECT id, n FROM t WHERE n > 50;"
NAMED = "CREATE VIEW named AS SELECT x.name, s.s FROM sums s JOIN names x ON s.g = x.g;"

Open = Callable[..., penstock.Pipeline]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """A pipeline on the same storage, started."""
    made: list[penstock.Pipeline] = []

    def opening(program: str, **config: Any) -> penstock.Pipeline:
        for pipeline in made:
            pipeline.kill()
        made.append(
            penstock.Pipeline("p", program, storage=tmp_path / "storage", config={"workers": 2, **config})
        )
        made[-1].start()
        return made[-1]

    yield opening
    for pipeline in made:
        pipeline.kill()


def fill(pipeline: penstock.Pipeline) -> None:
    pipeline.insert("t", [{"id": i, "g": i % 3, "n": i} for i in range(100)])
    pipeline.insert("names", [{"g": g, "name": f"group {g}"} for g in range(3)])
    pipeline.flush()
    pipeline.delete("t", [{"id": i} for i in range(0, 100, 10)])
    pipeline.flush()


def rows(pipeline: penstock.Pipeline, sql: str) -> list[dict[str, Any]]:
    return pipeline.query(sql).to_pylist()


def compare(pipeline: penstock.Pipeline) -> None:
    """Every view holds what its query gives over the tables."""
    for view in pipeline.program.views:
        kept = Counter(map(str, rows(pipeline, f"SELECT * FROM {view.name}")))
        assert kept == Counter(map(str, rows(pipeline, view.query))), view.name


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_kept_views_stay_and_new_ones_are_filled(opened: Open, tmp_path: Path, killed: bool) -> None:
    first = opened(TABLES + SUMS)
    fill(first)
    number = first.stats()["transactions"]
    trace = first.stats()["traces"]["view-sums"]
    if not killed:
        first.stop()
    second = opened(TABLES + SUMS + NAMED + LARGE)
    compare(second)
    assert second.stats()["transactions"] == number, "numbers go on"
    if not killed:
        assert second.stats()["traces"]["view-sums"] == trace, "it was not computed again"
    second.insert("t", [{"id": 7, "g": 2, "n": 1000}])
    second.flush()
    compare(second)
    third = opened(TABLES + NAMED.replace("sums s", "(SELECT g, max(n) AS s FROM t GROUP BY g) s"))
    compare(third)
    assert set(third.stats()["views"]) == {"named"}
    third.stop()
    opened(third.program.text).stop()  # so that no kept checkpoint has the view
    assert not list((tmp_path / "storage" / "batches" / "view-sums").glob("*.arrow")), "it went away"


def test_a_changed_view_changes_those_that_read_it(opened: Open) -> None:
    first = opened(TABLES + SUMS + NAMED)
    fill(first)
    first.stop()
    second = opened(TABLES + SUMS.replace("FROM t", "FROM t WHERE n % 2 = 0") + NAMED)
    compare(second)
    second.insert("t", [{"id": 200, "g": 0, "n": 8}])
    second.flush()
    compare(second)


def output(path: Path, name: str = "out") -> str:
    transport = {"name": "file_output", "config": {"path": str(path)}}
    return f"WITH ('connectors' = '{json.dumps([{'name': name, 'transport': transport}])}')"


def net(path: Path) -> tuple[Counter[str], list[int]]:
    """What a file of changes adds up to, and the numbers of its transactions."""
    found: Counter[str] = Counter()
    numbers = []
    for line in path.read_text().splitlines():
        change = json.loads(line)
        numbers.append(change.pop("_transaction"))
        sign = 1 if change.pop("_change_type") == "insert" else -1
        found[json.dumps(change, sort_keys=True)] += sign
    return found, numbers


def has_just(path: Path, expected: list[dict[str, Any]]) -> None:
    """A file of changes adds up to these rows, in the order of transactions and with nothing twice."""
    found, numbers = net(path)
    assert numbers == sorted(numbers)
    assert set(found.values()) <= {0, 1}, "nothing was written twice"
    assert sorted(k for k, n in found.items() if n) == sorted(
        json.dumps({**row, "_weight": 1}, sort_keys=True) for row in expected
    )


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_an_output_of_a_changed_view_gets_what_became_of_its_rows(
    opened: Open, tmp_path: Path, killed: bool
) -> None:
    out = tmp_path / "out.jsonl"
    view = f"CREATE VIEW v {output(out)} AS SELECT id, n FROM t WHERE n > 50;"
    first = opened(TABLES + view)
    fill(first)
    if not killed:
        first.stop()
    second = opened(TABLES + view.replace("n > 50", "n > 90 OR n < 5"))
    second.insert("t", [{"id": 300, "g": 0, "n": 95}])
    second.flush()
    second.kill()
    second = opened(TABLES + view.replace("n > 50", "n > 90 OR n < 5"))
    second.flush()
    has_just(out, rows(second, "SELECT id, n FROM t WHERE n > 90 OR n < 5"))


def test_another_spelling_of_a_name_changes_nothing(opened: Open) -> None:
    first = opened(TABLES + SUMS + NAMED)
    fill(first)
    before = rows(first, "SELECT * FROM named ORDER BY name")
    first.stop()
    second = opened((TABLES + SUMS + NAMED).replace("TABLE t", "TABLE T").replace("VIEW sums", "VIEW Sums"))
    assert rows(second, "SELECT * FROM named ORDER BY name") == before
    assert second.stats()["tables"]["T"]["rows"] == 90
    second.insert("t", [{"id": 200, "g": 0, "n": 8}])
    second.flush()
    compare(second)


def test_an_output_that_was_not_told_of_one_change_is_told_of_both(opened: Open, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    view = f"CREATE VIEW v {output(out)} AS SELECT id, n FROM t WHERE n > 95;"
    first = opened(TABLES + view)
    fill(first)
    first.stop()
    blocked = tmp_path / "w.jsonl"
    blocked.mkdir()
    other = f"CREATE VIEW w {output(blocked, 'blocked')} AS SELECT id FROM t;"
    with pytest.raises(penstock.PenstockError):
        opened(TABLES + view.replace("n > 95", "n < 5") + other)  # it is refused after the views were filled
    second = opened(TABLES + view)  # and so is taken back
    second.flush()
    has_just(out, rows(second, "SELECT id, n FROM t WHERE n > 95"))


def test_other_columns_for_an_output_are_refused(opened: Open, tmp_path: Path) -> None:
    view = f"CREATE VIEW v {output(tmp_path / 'out.jsonl')} AS SELECT id, n FROM t;"
    fill(opened(TABLES + view))
    with pytest.raises(
        StorageError, match="view v has other columns than before, and its output out has rows"
    ):
        opened(TABLES + view.replace("id, n", "id, g, n"))
    compare(opened(TABLES + view))


def test_a_changed_table_is_refused_and_nothing_is_lost(opened: Open) -> None:
    first = opened(TABLES + SUMS)
    fill(first)
    before = rows(first, "SELECT * FROM sums ORDER BY g")
    with pytest.raises(StorageError, match="table t has other columns or another key"):
        opened(TABLES.replace("n BIGINT", "n BIGINT, x INT") + SUMS)
    assert rows(opened(TABLES + SUMS), "SELECT * FROM sums ORDER BY g") == before


def test_a_view_that_cannot_be_filled_leaves_everything_as_it_was(opened: Open) -> None:
    first = opened(TABLES + SUMS)
    fill(first)
    before = rows(first, "SELECT * FROM sums ORDER BY g")
    with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
        opened(TABLES + SUMS + "CREATE VIEW bad AS SELECT id / (n - 55) AS x FROM t;")
    assert rows(opened(TABLES + SUMS), "SELECT * FROM sums ORDER BY g") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["bootstrap.caught-up", "bootstrap.filled", "checkpoint.batches", "checkpoint.manifest"]
)
def test_a_kill_while_going_over_changes_nothing(opened: Open, tmp_path: Path, place: str) -> None:
    out = tmp_path / "out.jsonl"
    view = f"CREATE VIEW v {output(out)} AS SELECT id, n FROM t WHERE n > 50;"
    first = opened(TABLES + view)
    fill(first)
    if place != "bootstrap.caught-up":
        first.stop()
    first.kill()
    changed = TABLES + SUMS + view.replace("n > 50", "n > 90 OR n < 5")
    start = (
        f"import penstock; penstock.Pipeline('p', {changed!r}, storage={str(tmp_path / 'storage')!r}).start()"
    )
    environment = {**os.environ, "PENSTOCK_FAILPOINT": place}
    killed = subprocess.run([sys.executable, "-c", start], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    second = opened(changed)
    second.flush()
    compare(second)
    has_just(out, rows(second, "SELECT id, n FROM t WHERE n > 90 OR n < 5"))


def test_an_open_transaction_keeps_its_program(opened: Open) -> None:
    first = opened(TABLES + SUMS)
    fill(first)
    number = first.start_transaction()
    with pytest.raises(StateError, match=f"transaction {number} is open"):
        opened(TABLES + SUMS + LARGE)
    again = opened(TABLES + SUMS)
    again.rollback_transaction(number)
    compare(opened(TABLES + SUMS + LARGE))


def test_a_corrected_program_goes_on_with_the_transaction_that_failed(opened: Open) -> None:
    bad = "CREATE VIEW share AS SELECT id, 100 / n AS x FROM t;"
    first = opened(TABLES + bad)
    first.insert("t", [{"id": 1, "g": 0, "n": 4}])
    first.flush()
    first.insert("t", [{"id": 2, "g": 0, "n": 0}])
    with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
        first.flush()
    second = opened(TABLES + bad.replace("100 / n", "try_divide(100, n)"))
    compare(second)
    assert [row["id"] for row in rows(second, "SELECT id FROM share ORDER BY id")] == [1, 2]


def test_an_output_that_is_gone_keeps_nobody_from_starting(opened: Open, tmp_path: Path) -> None:
    out = tmp_path / "out" / "v.jsonl"
    first = opened(TABLES + SUMS + f"CREATE VIEW v {output(out)} AS SELECT id FROM t;")
    fill(first)
    first.kill()
    shutil.rmtree(out.parent)
    out.parent.write_text("no directory")
    compare(opened(TABLES + SUMS + LARGE))


def test_no_program_is_gone_over_to_with_damaged_batches(opened: Open, tmp_path: Path) -> None:
    first = opened(TABLES + SUMS)
    fill(first)
    first.checkpoint()
    before = set((tmp_path / "storage" / "batches" / "view-sums").iterdir())
    first.insert("t", [{"id": 500, "g": 1, "n": 1}])
    first.flush()
    first.stop()
    for path in set((tmp_path / "storage" / "batches" / "view-sums").iterdir()) - before:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(DamagedError, match="view-sums"):
        opened(TABLES + SUMS + LARGE)  # which is filled from t
    compare(opened(TABLES + SUMS + LARGE))  # from the older checkpoint, with nothing lost


def test_a_start_that_was_interrupted_opens_nothing(tmp_path: Path) -> None:
    opening = Opening("p", parse_program(TABLES + SUMS), {"workers": 2}, Policy(), ())
    opening.interrupt()
    storage = Storage(tmp_path / "storage")
    with pytest.raises(StateError, match="was stopped while it was starting"):
        opening.open(storage)
    storage.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_start_that_waits_for_a_source_can_be_stopped(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1, "g": 1, "n": 1}\n')
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        path = f"http://127.0.0.1:{server.server_port}/t.jsonl"
        connector = {"name": "in", "transport": {"name": "url_input", "config": {"path": path}}}
        read = f"n BIGINT) WITH ('connectors' = '{json.dumps([connector])}')"
        tables = TABLES.replace("n BIGINT)", read)
        first = opened(tables + SUMS)
        first.wait()
        first.kill()
        server.shutdown()
    second = penstock.Pipeline("p", tables + SUMS + LARGE, storage=tmp_path / "storage")
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(second.start)
        while second.state != "Bootstrapping":
            time.sleep(0.05)
        time.sleep(2)
        assert not starting.done(), "the old program's transaction waits for the server"
        second.stop()
        with pytest.raises(PenstockError, match="was stopped"):
            starting.result(60)
