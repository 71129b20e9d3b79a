"""`penstock program`: the SQL program of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.service.documents import read_text
from penstock.cli.service.drawing import facts, table
from penstock.cli.service.pipelines import compiled
from penstock.cli.service.problems import wrong_program
from penstock.cli.service.session import PANEL, Name, NoWait, Session, Timeout, service_command

program = typer.Typer(help="Read, change, check and compare programs.", no_args_is_help=True)

ProgramFile = Annotated[
    Path, typer.Argument(metavar="PROGRAM", help="File with an SQL program; - for what is piped in.")
]


def add_commands(app: typer.Typer) -> None:
    service_command(program, "get", "penstock program get shop > shop.sql")(get)
    service_command(program, "set", "penstock program set shop shop.sql")(set_)
    service_command(program, "status", "penstock program status shop")(status)
    service_command(program, "check", "penstock program check shop.sql")(check)
    service_command(program, "diff", "penstock program diff shop new.sql")(diff)
    service_command(program, "errors", "penstock program errors shop")(errors)
    app.add_typer(program, name="program", rich_help_panel=PANEL)


def get(session: Session, name: Name) -> None:
    """Write the program of a pipeline."""
    code = str(session.client.get("pipelines", name)["program_code"])
    if session.out.as_json:
        session.out.document({"program_code": code})
    else:
        typer.echo(code, nl=not code.endswith("\n"))


def set_(
    session: Session, name: Name, program: ProgramFile, timeout: Timeout = None, no_wait: NoWait = False
) -> None:
    """Give a stopped pipeline another program, and wait until it is compiled."""
    row = session.client.patch("pipelines", name, body={"program_code": read_text(program)})
    if not no_wait:
        row = compiled(session, name, str(program), timeout)
    session.out.answer(_status(row), f"Pipeline {name} has the program, version {row['program_version']}.")


def status(session: Session, name: Name) -> None:
    """Show whether the program of a pipeline is compiled."""
    found = _status(session.client.get("pipelines", name, selector="status"))
    session.out.answer(
        found, facts([("status", found["program_status"]), ("version", found["program_version"])])
    )


def _status(row: dict[str, Any]) -> dict[str, Any]:
    return {field: row[field] for field in ("name", "program_status", "program_version")}


def check(session: Session, program: ProgramFile) -> None:
    """Have the service say what is wrong with a program, or that nothing is. No pipeline is made."""
    text = read_text(program)
    found = session.client.post("validate_program", body={"program_code": text})
    if "SqlError" in found:
        raise wrong_program({"sql_compilation": found["SqlError"]["info"]}, str(program), text)
    if "SystemError" in found:
        raise wrong_program({"system_error": found["SystemError"]["error"]}, str(program), text)
    session.out.answer(found, f"{program}: no errors")


def diff(session: Session, name: Name, program: ProgramFile) -> None:
    """Show which tables, views and connectors another program would add, change and remove."""
    found = session.client.post("pipelines", name, "diff", body={"program_code": read_text(program)})
    rows = list(_changes(found))
    session.out.answer(found, table(("what", "name"), rows) if rows else "Nothing changes.")


def _changes(found: dict[str, Any]) -> list[tuple[str, str]]:
    lists = {**(found.get("program_diff") or {}), **found}
    return [
        (kind.replace("_", " ").removesuffix("s"), name)
        for kind, names in lists.items()
        if isinstance(names, list)
        for name in names
    ]


def errors(session: Session, name: Name) -> None:
    """Show what is wrong with the program of a pipeline: exit code 1 if something is."""
    row = session.client.get("pipelines", name)
    if row["program_status"] in ("SqlError", "SystemError"):
        raise wrong_program(row["program_error"], f"program of {name}", row["program_code"])
    session.out.answer(row["program_error"], f"program of {name}: no errors ({row['program_status']})")
