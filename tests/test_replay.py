"""What was recorded is run again, and must be what it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import PenstockError, ReplayError, StateError, StorageError

Open = Callable[[str], penstock.Pipeline]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """A pipeline on the same storage, not started."""
    made: list[penstock.Pipeline] = []

    def making(program: str) -> penstock.Pipeline:
        made.append(penstock.Pipeline("p", program, storage=tmp_path / "storage", config={"workers": 2}))
        return made[-1]

    yield making
    for pipeline in made:
        pipeline.kill()


def program(*connectors: dict[str, object]) -> str:
    return f"""
    CREATE TABLE t (id INT PRIMARY KEY, n BIGINT) WITH ('connectors' = '{json.dumps(connectors)}');
    CREATE VIEW total AS SELECT count(*) AS c, sum(n) AS s FROM t;
    """


def file(path: Path, name: str = "lines") -> dict[str, object]:
    return {
        "name": name,
        "transport": {"name": "file_input", "config": {"path": str(path), "follow": True}},
        "format": {"name": "csv"},
    }


def datagen(seed: int, limit: int = 500) -> dict[str, object]:
    plan = [
        {
            "limit": limit,
            "fields": {"id": {"strategy": "increment"}, "n": {"strategy": "uniform", "range": [0, 1000]}},
        }
    ]
    return {"name": "made", "transport": {"name": "datagen", "config": {"seed": seed, "plan": plan}}}


def counted(pipeline: penstock.Pipeline, rows: int) -> None:
    """Wait until the table has so many rows."""
    for _ in range(600):
        if pipeline.query("SELECT c FROM total").to_pylist() == [{"c": rows}]:
            return
        pipeline.wait(0.05)
    raise AssertionError(pipeline.stats())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,1\n2,9\n", r"the 2 rows of the connector lines had the hash \w+, and have \w+ now"),
        ("1,10000\n", "the connector lines gave it 2 rows, and gives 1 now"),
    ],
    ids=["hash", "count"],
)
def test_a_file_that_changed_is_refused(opened: Open, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n2,2\n")
    pipeline = opened(program(file(path)))
    pipeline.start()
    counted(pipeline, 2)
    pipeline.kill()
    path.write_text(text)
    pipeline = opened(program(file(path)))
    with pytest.raises(ReplayError, match=message) as raised:
        pipeline.start()
    assert "transaction 1 " in str(raised.value)
    assert "may have been changed" in str(raised.value)
    assert pipeline.state == "Stopped"
    path.write_text("1,1\n2,2\n3,3\n")
    pipeline = opened(program(file(path)))
    pipeline.start()  # put back, it goes on
    counted(pipeline, 3)


def test_another_seed_is_refused_by_name(opened: Open) -> None:
    pipeline = opened(program(datagen(seed=1)))
    pipeline.start()
    assert pipeline.wait(30)
    before = pipeline.query("SELECT * FROM total").to_pylist()
    pipeline.kill()
    with pytest.raises(PenstockError, match=r"connector made .*seed was 1 and is 2"):
        opened(program(datagen(seed=2))).start()
    pipeline = opened(program(datagen(seed=1)))
    pipeline.start()
    assert pipeline.query("SELECT * FROM total").to_pylist() == before


def test_a_connector_that_the_journal_needs_cannot_be_left_out(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n")
    pipeline = opened(program(file(path), datagen(1, limit=5)))
    pipeline.start()
    counted(pipeline, 5)
    pipeline.kill()
    with pytest.raises(ReplayError, match="rows of the connector lines, which the program does not have"):
        opened(program(datagen(1, limit=5))).start()
    pipeline = opened(program(file(path), datagen(1, limit=5)))
    pipeline.start()
    pipeline.stop()
    pipeline = opened(program(datagen(1, limit=5)))
    pipeline.start()  # after a checkpoint nobody needs it
    counted(pipeline, 5)


def test_a_checkpoint_leaves_nothing_to_replay(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n")
    pipeline = opened(program(file(path)))
    pipeline.start()
    counted(pipeline, 1)
    pipeline.checkpoint()
    pipeline.kill()
    path.write_text("1,7\n2,2\n")  # what was read is not read again, and what follows goes on from there
    pipeline = opened(program(file(path)))
    pipeline.start()
    counted(pipeline, 2)
    assert pipeline.query("SELECT s FROM total").to_pylist() == [{"s": 3}]


def test_queries_are_refused_while_it_replays(opened: Open, tmp_path: Path) -> None:
    text = program()
    pipeline = opened(text)
    pipeline.start()
    for id_ in range(5):
        pipeline.insert("t", [{"id": id_, "n": id_}])
        pipeline.flush()
    pipeline.kill()
    pipeline = opened(text)
    pipeline.start(wait=False)
    assert pipeline.state == "Replaying"
    pipeline.insert("t", [{"id": 9, "n": 9}])  # waits
    with pytest.raises(StateError, match=r"replayed \d of \d transactions.*ask again when it runs"):
        pipeline.query("SELECT * FROM total")
    with pytest.raises(StateError, match="replayed"):
        pipeline.changes("total")
    assert pipeline.recovered(60)
    pipeline.flush()
    assert pipeline.query("SELECT * FROM total").to_pylist() == [{"c": 6, "s": 19}]


def test_a_journal_that_lacks_what_an_output_has_is_refused(opened: Open, tmp_path: Path) -> None:
    out = json.dumps([{"transport": {"name": "file_output", "config": {"path": str(tmp_path / "out.json")}}}])
    text = program().replace("VIEW total AS", f"VIEW total WITH ('connectors' = '{out}') AS")
    pipeline = opened(text)
    pipeline.start()
    journal = next((tmp_path / "storage" / "journal").glob("*.log"))
    size = journal.stat().st_size
    pipeline.insert("t", [{"id": 1, "n": 1}])
    pipeline.flush()
    pipeline.kill()
    with journal.open("r+b") as segment:
        segment.truncate(size)
    with pytest.raises(StorageError, match=r"has transaction 1, and the journal ends with\s+transaction 0"):
        opened(text).start()


def test_transactions_that_are_replayed_together_are_not_delivered_again(
    opened: Open, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    connectors = json.dumps([{"transport": {"name": "file_output", "config": {"path": str(out)}}}])
    text = f"""
    CREATE TABLE t (id INT PRIMARY KEY, n BIGINT);
    CREATE TABLE u (id INT PRIMARY KEY, n BIGINT);
    CREATE VIEW v WITH ('connectors' = '{connectors}') AS SELECT id, n FROM t;
    CREATE VIEW w AS SELECT id, n FROM u;
    """
    pipeline = opened(text)
    seen: list[int] = []
    pipeline.on_change("v", lambda number, _: seen.append(number))
    pipeline.start()
    pipeline.insert("t", [{"id": 1, "n": 1}])
    pipeline.flush()
    for id_ in (2, 3):
        pipeline.insert("u", [{"id": id_, "n": 1}])
        pipeline.flush()
    pipeline.kill()
    pipeline = opened(text)
    pipeline.on_change("v", lambda number, _: seen.append(number))
    pipeline.start()
    pipeline.flush()
    assert pipeline.stats()["recovery"]["transactions"] == 4
    assert [json.loads(line)["_transaction"] for line in out.read_text().splitlines()] == [1]
    assert seen == [1]


def test_a_connector_that_was_left_out_is_remembered(opened: Open, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("1,1\n")
    second.write_text("2,2\n")
    pipeline = opened(program(file(first)))
    pipeline.start()
    counted(pipeline, 1)
    pipeline.stop()
    pipeline = opened(program())
    pipeline.start()
    pipeline.stop()
    with pytest.raises(
        StorageError, match=r"connector lines is not the one .* its transport\.config\.path was"
    ):
        opened(program(file(second))).start()
    pipeline = opened(program(file(second, name="others")))
    pipeline.start()
    counted(pipeline, 2)


def test_the_journal_can_be_read(opened: Open, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from penstock.cli import app

    pipeline = opened(program())
    pipeline.start()
    pipeline.insert("t", [{"id": 1, "n": 1}])
    pipeline.flush()
    pipeline.start_transaction()
    pipeline.kill()
    storage = str(tmp_path / "storage")
    lines = CliRunner().invoke(app, ["journal", "show", storage, "--json"]).output.splitlines()
    kinds = [(record["kind"], record["transaction"]) for record in map(json.loads, lines)]
    assert kinds == [("step", 0), ("commit", 0), ("step", 1), ("commit", 1), ("begin", 2)]
    shown = CliRunner().invoke(app, ["journal", "show", storage]).output
    assert re.search(r"api -> t: 1\s+rows", shown)
    wrong = CliRunner().invoke(app, ["resume", storage, "--skip-transaction", "1"])
    assert wrong.exit_code == 1
    assert CliRunner().invoke(app, ["resume", storage, "--skip-transaction", "2"]).exit_code == 0
    pipeline = opened(program())
    pipeline.start()
    assert (pipeline.open_transaction, pipeline.stats()["transactions"]) == (None, 2)
