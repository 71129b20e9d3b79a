"""The command line: what it accepts, and how it shows errors. None of this runs a pipeline."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from penstock.cli.progress import Figures, PlainDisplay, Rates, live_table, plain_line, summary
from penstock.cli.report import describe
from penstock.errors import ConnectorError, ProgramError

STATS: dict[str, Any] = {
    "transactions": 12,
    "state": "running",
    "latency_ms": {"median": 104.4, "p95": 1180.0, "last": None},
    "tables": {
        "orders": {"rows_in": 1200, "errors": 1, "rows": None},
        "customers": {"rows_in": 5, "errors": 0, "rows": 5},
    },
    "views": {"by_region": {"rows": 3, "changes": 17}},
    "traces": {},
}


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "program.sql"
    path.write_text(text)
    return path


def test_version() -> None:
    result = call("--version")
    assert result.exit_code == 0
    assert result.output == f"penstock {penstock.__version__}\n"


def test_help_names_the_commands() -> None:
    result = call("--help")
    assert result.exit_code == 0
    assert all(command in result.output for command in ("run", "check", "explain"))


@pytest.mark.parametrize(
    "args",
    [
        ["run"],
        ["run", "no-such-file.sql"],
        ["run", __file__, "--workers", "0"],
        ["explain", __file__, "--format", "xml"],
        ["no-such-command"],
    ],
)
def test_wrong_usage_is_exit_code_2(args: list[str]) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_program_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "program.sql"
    path.write_bytes(b"\xff\xfe")
    result = call("check", path)
    assert result.exit_code == 2
    assert "cannot read" in result.output


def test_error_stands_under_its_column() -> None:
    error = ProgramError("unknown column 'x'", line=2, column=9, statement="view v")
    text = describe(error, Path("p.sql"), "CREATE VIEW v AS\n\tSELECT x FROM t\n").plain
    assert text == (
        "error[PROGRAM_ERROR]: unknown column 'x' (in view v)\n"
        "  --> p.sql:2:9\n"
        "  |\n"
        "2 | \tSELECT x FROM t\n"
        "  | \t       ^"
    )


def test_error_without_a_place() -> None:
    assert describe(ConnectorError("no file"), Path("p"), "").plain == "error[CONNECTOR_ERROR]: no file"
    assert describe(ProgramError("empty"), Path("p"), "").plain == "error[PROGRAM_ERROR]: empty"
    beyond = describe(ProgramError("more expected", line=9, column=1), Path("p"), "one line").plain
    assert beyond == "error[PROGRAM_ERROR]: more expected\n  --> p:9:1"


def printed(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rates_after(seconds: float) -> Rates:
    now = 0.0
    rates = Rates(lambda: now)
    rates.add(Figures(STATS | {"transactions": 2, "tables": {"orders": {"rows_in": 200}}}))
    now = seconds
    rates.add(Figures(STATS))
    return rates


def test_rates_are_per_second() -> None:
    rates = rates_after(2.0)
    assert rates.transactions == 5.0
    assert rates.rows("orders") == 500.0
    assert rates.rows("customers") == 2.5
    assert Rates().transactions == 0.0


def test_live_table_shows_inputs_views_and_latency() -> None:
    text = printed(live_table(Figures(STATS), rates_after(2.0)))
    for part in (
        "orders",
        "1,200",
        "500",
        "by_region",
        "17",
        "12 transactions",
        "5.0/s",
        "1,180 ms p95",
        "- last",
    ):
        assert part in text


def test_plain_line_and_summary() -> None:
    assert plain_line(Figures(STATS), rates_after(2.0)) == (
        "running · 12 transactions · 5.0/s · latency - last, 104 ms median, 1,180 ms p95 · "
        "rows in: orders 1,200, customers 5 · rows of views: by_region 3"
    )
    assert summary(Figures(STATS)) == "12 transactions, 1,205 rows in, 1 error."


def test_plain_display_writes_only_what_is_new() -> None:
    now = 0.0
    console = Console(file=io.StringIO(), width=200)
    display = PlainDisplay(console, lambda: now)
    for moment, transactions in ((0.0, 0), (0.1, 1), (0.2, 2), (1.5, 2), (3.0, 2)):
        now = moment
        display.show(STATS | {"transactions": transactions})
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split(" · ")[1] for line in lines] == ["1 transaction", "2 transactions"]
