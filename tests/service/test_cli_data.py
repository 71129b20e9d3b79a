"""Rows in and out by commands: query, shell, ingest, listen."""

from __future__ import annotations

import io
import json
import signal
import stat
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.service.commands import Commands, Terminal
from tests.service.managers import Manager
from tests.service.test_service_pipelines import new_name

TABLE = """\
┏━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━┓
┃ region    ┃ orders ┃ total ┃
┡━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━┩
│ north     │     12 │  1.50 │
│ south[/b] │      3 │ 20.00 │
│ NULL      │      0 │  NULL │
└───────────┴────────┴───────┘
"""


@pytest.fixture(scope="module")
def running(shared: Manager) -> str:
    name = new_name()
    shared.start(name, "shop")
    return name


# -- query ----------------------------------------------------------------------------------------


def test_a_query_is_drawn(cli: Commands, running: str) -> None:
    drawn = cli.ok("query", running, "SELECT * FROM by_region;")
    assert (drawn.out, drawn.err) == (TABLE, "3 rows\n")
    empty = cli.ok("query", running, "nothing")
    assert "region" in empty.out
    assert empty.err == "0 rows\n"


def test_many_rows_are_not_all_drawn(cli: Commands, running: str) -> None:
    some = cli.ok("query", running, "many")
    assert len(some.out.splitlines()) == 1004
    assert "1,000 of 2,500 rows" in some.err
    assert len(cli.ok("query", running, "many", "--max-rows", 0).out.splitlines()) == 2504


def test_nothing_of_a_wide_answer_is_cut(cli: Commands, running: str) -> None:
    wide = cli.ok("query", running, "wide").out
    assert all(f"column_{number}" in wide for number in range(60))
    with Terminal(cli, "query", running, "wide") as terminal:
        terminal.until("-- row 1")
        terminal.until("column_59")


def test_forms_of_an_answer(cli: Commands, running: str, tmp_path: Path) -> None:
    rows = cli.ok("query", running, "SELECT", "--format", "json").lines
    assert rows[0] == {"region": "north", "orders": 12, "total": "1.50"}
    assert cli.ok("query", running, "SELECT", "--format", "csv").out == (
        "region,orders,total\nnorth,12,1.50\nsouth[/b],3,20.00\n,0,\n"
    )
    assert len(cli.ok("query", running, "SELECT", "--format", "hash").out) == 65
    arrow = cli.ok("query", running, "SELECT", "--format", "arrow").out.encode(errors="surrogateescape")
    assert pa.ipc.open_stream(io.BytesIO(arrow)).read_all().num_rows == 3
    file = tmp_path / "answer.parquet"
    written = cli.ok("query", running, "SELECT", "--format", "parquet", "-o", file)
    assert written.out == ""
    assert pq.read_table(file).num_rows == 3
    assert cli("query", running, "SELECT", "-o", file).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["answer.parquet"]


def test_a_wrong_query(cli: Commands, running: str) -> None:
    wrong = cli("query", running, "wrong")
    assert (wrong.code, wrong.out) == (1, "")
    assert "error[AdHocQueryError]: there is no column wrong" in wrong.err


# -- shell ----------------------------------------------------------------------------------------


def test_a_shell_reads_from_a_pipe(cli: Commands, running: str) -> None:
    typed = "SELECT ';'\n  FROM x; \\\n\\d\n\\d orders\nSELECT 2"
    found = cli.ok("shell", running, given=typed.replace(" \\\n", "\n"))
    assert found.out.count(TABLE) == 2
    assert "│ by_region │ view" in found.out
    assert "DECIMAL(12, 2)" in found.out
    assert "primary key" in found.out
    assert not (cli.home / "state").exists()


def test_a_shell_from_a_pipe_ends_with_the_first_error(cli: Commands, running: str) -> None:
    found = cli("shell", running, "--format", "json", given="SELECT 1; wrong; SELECT 2;")
    assert found.code == 1
    assert len(found.lines) == 3
    assert "no column wrong" in found.err
    assert cli("shell", running, given="\\x\n").code == 2


def test_a_shell_at_a_terminal(cli: Commands, running: str) -> None:
    prompt = f"{running}=>"
    with Terminal(cli, "shell", running) as terminal:
        terminal.until(prompt)
        terminal.type("SELECT 1\n")
        terminal.until(f"{running}->")
        terminal.type("FROM x;\n")
        assert "south" in terminal.until(prompt)
        terminal.type("wrong;\n")
        assert "no column wrong" in terminal.until(prompt)
        terminal.type("SELECT unfinished")
        terminal.until("unfinished")
        terminal.interrupt_until(prompt)
        terminal.type("slowly;\n")
        terminal.until("slowly;")
        time.sleep(1.0)  # until the query is sent
        terminal.ctrl_c()
        terminal.until("given up")
        terminal.until(prompt)
        terminal.type("\x04")
        assert terminal.process.wait(10) == 0
    history = cli.home / "state" / "penstock" / "shell-history"
    assert history.read_text().splitlines() == ["SELECT 1 FROM x;", "wrong;", "slowly;"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


# -- ingest ---------------------------------------------------------------------------------------


def test_ingest(cli: Commands, running: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"insert": {"id": 1}}\n' * 50_000)
    size = file.stat().st_size
    sent = cli.ok("ingest", running, "orders", file, "--wait", "--format", "json").json
    assert sent == {"table": "orders", "bytes": size, "token": "a-token", "status": "complete", "step": 8}
    assert "Table orders has got 1.0 MiB." in cli.ok("ingest", running, "orders", file).out
    piped = cli.ok("ingest", running, "orders", "-", "--data-format", "csv", given="1,2\n")
    assert "4 B" in piped.out


def test_rows_that_are_rejected(cli: Commands, running: str, tmp_path: Path) -> None:
    rejected = cli("ingest", running, "orders", "-", "--update-format", "raw", given="reject")
    assert (rejected.code, rejected.out) == (1, "")
    assert "error[ParseErrors]: line 2 of what was pushed to orders" in rejected.err
    file = tmp_path / "orders.txt"
    file.write_text("1")
    assert cli("ingest", running, "orders", file).code == 2
    assert cli("ingest", running, "nowhere", file, "--data-format", "csv").code == 3
    large = tmp_path / "large.csv"
    large.write_bytes(b"1\n" * (5 << 20))
    refused = cli("ingest", running, "orders", large)
    assert refused.code == 2
    assert "--max-body" in refused.err


def test_ingest_while_paused(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.create(name)
    cli.ok("start", name, "--paused")
    refused = cli("ingest", name, "orders", "-", given="{}")
    assert refused.code == 4
    assert "--force" in refused.err
    cli.ok("ingest", name, "orders", "-", "--force", given="{}")
    cli.ok("stop", name)
    stopped = cli("ingest", name, "orders", "-", given="{}")
    assert stopped.code == 4
    assert f"penstock start {name}" in stopped.err


# -- listen ---------------------------------------------------------------------------------------


def test_listen_until_ctrl_c(cli: Commands, running: str) -> None:
    with cli.begun("listen", running, "by_region", "--snapshot") as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""
    assert lines == [
        '+ {"region": "north", "orders": 11}\n',
        '- {"region": "north", "orders": 0}\n',
        '+ {"region": "north", "orders": 1}\n',
    ]


def test_listen_for_a_program(cli: Commands, running: str) -> None:
    with cli.begun("listen", running, "by_region", "--format", "json") as process:
        chunks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdout.close()  # as `| head -n 2` does
        assert process.wait(10) == 0
    assert [chunk["sequence_number"] for chunk in chunks] == [0, 1]
    assert cli("listen", running, "nowhere").code == 3


def test_listen_ends_with_the_pipeline(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.start(name)
    with cli.begun("listen", name, "v") as process:
        process.stdout.readline()
        shared.post(f"/{name}/stop")
        assert process.wait(20) == 0
        assert f"pipeline {name} is" in process.stderr.read()


def test_listen_says_why_a_pipeline_ended(cli: Commands, shared: Manager) -> None:
    name = new_name()
    shared.start(name, fault_tolerance={"model": "none"})
    runner = psutil.Process(shared.http.get(f"/v0/pipelines/{name}/stats").json()["pid"])
    with cli.begun("listen", name, "v") as process:
        process.stdout.readline()
        runner.kill()
        assert process.wait(20) == 1
        assert f"penstock logs {name}" in process.stderr.read()
