"""What `diff` says of two programs: which tables and views keep their rows, and which are filled anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import app
from penstock.engine.difference import Difference, Parts, difference
from penstock.engine.fingerprints import Identity, Kind
from penstock.engine.programs import identified
from penstock.errors import ProgramError
from tests.oracle.cases import load_cases, load_schema, program_of

ROOT = Path(__file__).parent.parent
TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, x DECIMAL(10, 2));
CREATE TABLE u (id INT, t_id INT);
"""
VIEWS = """
CREATE VIEW sums AS SELECT g, sum(x) AS s FROM t GROUP BY g;
CREATE VIEW large AS SELECT g FROM sums WHERE s > 10;
CREATE VIEW pairs AS SELECT t.id, u.id AS u_id FROM t JOIN u ON t.id = u.t_id;
"""
PROGRAM = TABLES + VIEWS


def _views(program: str) -> Parts:
    return penstock.diff(PROGRAM, program).views


def test_what_is_written_otherwise_is_kept() -> None:
    program = """
        CREATE TABLE U (ID INT, T_ID INT) WITH ('connectors' = '[{"transport": {"name": "datagen",
          "config": {"plan": [{"limit": 1}]}}}]');
        CREATE TABLE t (id INT PRIMARY KEY, g INT DEFAULT 3, x DECIMAL(10, 2));
        -- the order and the spelling of statements do not matter
        CREATE MATERIALIZED VIEW sums AS SELECT g, SUM( x ) AS s FROM t GROUP BY g;
        CREATE LOCAL VIEW large AS SELECT g FROM sums WHERE NOT (s <= 10);
        CREATE VIEW pairs AS SELECT t.id, u.id AS u_id FROM t JOIN u ON t.id = u.t_id;
    """
    found = penstock.diff(PROGRAM, program)
    assert found.tables == Parts(("U", "t"), (), (), ())
    assert found.views == Parts(("sums", "large", "pairs"), (), (), ())
    assert found.filled == ()


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("s > 10", "s > 11", ("large",)),
        ("sum(x) AS s", "sum(x) + 0 AS s", ("sums", "large")),
        ("sum(x) AS s", "sum(x) AS S", ("sums", "large")),
        ("u.id AS u_id", "u.id AS uid", ("pairs",)),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)", ("sums", "large", "pairs")),
        ("x DECIMAL(10, 2)", "x DECIMAL(10, 2), y INT", ("sums", "large", "pairs")),
        ("t_id INT", "t_id INT NOT NULL", ("pairs",)),
        ("u (id INT, t_id INT)", "u (id INT PRIMARY KEY, t_id INT)", ("pairs",)),
    ],
)
def test_a_change_reaches_every_view_above_it(before: str, after: str, changed: tuple[str, ...]) -> None:
    assert before in PROGRAM
    assert _views(PROGRAM.replace(before, after)).changed == changed


def test_views_come_and_go() -> None:
    found = _views(TABLES + VIEWS.replace("VIEW large", "VIEW larger"))
    assert found == Parts(("sums", "pairs"), ("larger",), (), ("large",))


def test_a_table_that_becomes_a_view() -> None:
    found = penstock.diff(
        PROGRAM, f"{TABLES.replace('TABLE u', 'TABLE v')} CREATE VIEW u AS SELECT * FROM v;"
    )
    assert found.tables == Parts(("t",), ("v",), (), ("u",))
    assert found.views == Parts((), ("u",), (), ("sums", "large", "pairs"))
    assert found.filled == ("u",)


def test_time_is_no_table_of_the_user() -> None:
    found = penstock.diff(
        TABLES, f"{TABLES} CREATE VIEW late AS SELECT id FROM t WHERE now() > '2020-01-01';"
    )
    assert found == Difference(Parts(("t", "u"), (), (), ()), Parts((), ("late",), (), ()))


def test_a_view_computed_as_a_whole() -> None:
    view = """CREATE VIEW tree AS WITH RECURSIVE r AS (SELECT id FROM t WHERE g = 0
        UNION ALL SELECT u.id FROM u JOIN r ON u.t_id = r.id) SELECT id FROM r;"""
    old = TABLES + view
    assert penstock.diff(old, old).views.kept == ("tree",)
    assert penstock.diff(old, old.replace("g = 0", "g = 1")).views.changed == ("tree",)
    assert penstock.diff(old, old.replace("g INT", "g BIGINT")).views.changed == ("tree",)


def test_a_wrong_program_is_refused() -> None:
    with pytest.raises(ProgramError, match="idd"):
        penstock.diff(PROGRAM, f"{TABLES} CREATE VIEW v AS SELECT idd FROM t;")


def test_the_same_in_every_process() -> None:
    program = program_of(load_schema(), load_cases()[::12])
    script = (
        "import sys, json; from penstock.engine.programs import identified; "
        "found = identified(sys.stdin.read()); "
        "print(json.dumps({name: i.fingerprint for name, i in found.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=program,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
    )
    there = json.loads(done.stdout.strip().splitlines()[-1])
    assert there == {name: found.fingerprint for name, found in identified(program).items()}


def test_as_text() -> None:
    def table(name: str, mark: str) -> Identity:
        return Identity(name, Kind.TABLE, mark)

    def view(name: str, mark: str) -> Identity:
        return Identity(name, Kind.VIEW, mark)

    old = {"t": table("T", "1"), "u": table("u", "2"), "v": view("v", "3"), "w": view("w", "4")}
    new = {"t": table("t", "1"), "u": table("u", "9"), "v": view("v", "8"), "longer": view("longer", "5")}
    assert str(difference(old, new)).splitlines() == [
        "table  t       kept",
        "table  u       changed: its columns or its key are others",
        "view   longer  filled: it is new",
        "view   v       filled: its query changed, or what it reads did",
        "view   w       dropped",
    ]


def test_on_the_command_line(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sql", tmp_path / "new.sql"
    old.write_text(PROGRAM)
    new.write_text(PROGRAM.replace("s > 10", "s > 11"))
    result = CliRunner().invoke(app, ["diff", str(old), str(new), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["views"] == {
        "kept": ["sums", "pairs"],
        "added": [],
        "changed": ["large"],
        "removed": [],
    }
    shown = CliRunner().invoke(app, ["diff", str(old), str(new)])
    assert shown.exit_code == 0
    assert "large" in shown.output
    assert "filled" in shown.output


def test_the_command_line_names_the_wrong_program(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sql", tmp_path / "new.sql"
    old.write_text(PROGRAM)
    new.write_text(f"{TABLES}CREATE VIEW v AS SELECT idd FROM t;")
    result = CliRunner().invoke(app, ["diff", str(old), str(new)])
    assert result.exit_code == 1
    assert f"{new}:" in result.output
    assert "Traceback" not in result.output
