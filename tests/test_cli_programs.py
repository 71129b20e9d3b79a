"""The commands on real programs: checking, explaining, running to the end and stopping."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app

SHOP = Path(__file__).parent.parent / "examples" / "shop.sql"


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def generated(tmp_path: Path, plan: str) -> Path:
    """A program that reads made-up rows and writes its view to out.json."""
    path = tmp_path / "program.sql"
    path.write_text(f"""
        CREATE TABLE t (id BIGINT PRIMARY KEY, v INT) WITH ('connectors' = '[{{"transport":
          {{"name": "datagen", "config": {{"seed": 1, "plan": [{plan}]}}}}}}]');
        CREATE VIEW by_v WITH ('connectors' = '[{{"transport":
          {{"name": "file_output", "config": {{"path": "{tmp_path}/out.json"}}}}}}]')
        AS SELECT v, count(*) AS n FROM t GROUP BY v;
    """)
    return path


def contents(path: Path) -> dict[int, int]:
    """What the written changes add up to."""
    rows: dict[tuple[int, int], int] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        key = (row["v"], row["n"])
        rows[key] = rows.get(key, 0) + (
            row["_weight"] if row["_change_type"] == "insert" else -row["_weight"]
        )
    assert set(rows.values()) <= {0, 1}
    return dict(key for key, weight in rows.items() if weight)


def test_check_accepts_the_example() -> None:
    result = call("check", SHOP)
    assert result.output == f"{SHOP}: no errors\n"
    assert result.exit_code == 0


@pytest.mark.parametrize("command", ["check", "explain", "run"])
def test_wrong_program_shows_the_line(tmp_path: Path, command: str) -> None:
    path = tmp_path / "program.sql"
    path.write_text("CREATE TABLE t (id INT);\nCREATE VIEW v AS\nSELECT idd FROM t;\n")
    result = call(command, path)
    assert result.exit_code == 1
    assert f"{path}:3:8" in result.output
    assert "3 | SELECT idd FROM t;\n  |        ^" in result.output
    assert "Traceback" not in result.output


def test_explain_in_each_format() -> None:
    assert "by_region" in call("explain", SHOP).output
    one = call("explain", SHOP, "by_region", "--format", "json")
    assert one.exit_code == 0
    assert json.loads(one.output)
    assert "flowchart" in call("explain", SHOP, "--format", "mermaid").output


def test_explain_of_an_unknown_view() -> None:
    result = call("explain", SHOP, "by_regoin")
    assert result.exit_code == 1
    assert "by_regoin" in result.output


def test_run_ends_when_every_input_ended(tmp_path: Path) -> None:
    plan = '{"limit": 3000, "fields": {"v": {"strategy": "uniform", "range": [0, 5]}}}'
    result = call("run", generated(tmp_path, plan), "--storage", tmp_path / "state", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "Every input has ended" in result.output
    assert "3,000 rows in." in result.output
    found = contents(tmp_path / "out.json")
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert sum(found.values()) == 3000


def test_run_without_inputs_says_so(tmp_path: Path) -> None:
    path = tmp_path / "program.sql"
    path.write_text("CREATE TABLE t (id INT); CREATE VIEW v AS SELECT * FROM t;")
    result = call("run", path)
    assert result.exit_code == 0
    assert "nothing to run" in result.output


def test_run_with_a_wrong_connector_names_it(tmp_path: Path) -> None:
    result = call("run", generated(tmp_path, '{"fields": {"w": {}}}'))
    assert result.exit_code == 1
    assert "no column 'w'" in result.output


def test_ctrl_c_stops_in_order(tmp_path: Path) -> None:
    path = generated(tmp_path, '{"rate": 500}')
    command = [sys.executable, "-m", "penstock.cli", "run", str(path), "--workers", "1"]
    environment = os.environ | {"PYTHONPATH": str(SHOP.parent.parent)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        output = tmp_path / "out.json"
        until = time.monotonic() + 120
        while time.monotonic() < until and not (output.exists() and output.stat().st_size):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert "Stopped by Ctrl-C" in text
    assert "Traceback" not in text
    assert sum(contents(output).values()) > 0
