"""`penstock pipelines`, `create`, `status`, `clear`, `delete` and `dismiss-error`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.report import read_program
from penstock.cli.service.documents import read_json
from penstock.cli.service.drawing import facts, first_line, since, table
from penstock.cli.service.problems import wrong_program
from penstock.cli.service.session import Name, NoWait, Session, Timeout, service_command
from penstock.cli.service.waiting import Row, Say, poll

_COMPILED = ("Success", "SqlError", "SystemError")


def add_commands(app: typer.Typer) -> None:
    service_command(app, "pipelines", "penstock pipelines --format json")(pipelines)
    service_command(app, "create", "penstock create shop examples/shop.sql --config shop.json")(create)
    service_command(app, "status", "penstock status shop")(status)
    service_command(app, "clear", "penstock clear shop")(clear)
    service_command(app, "delete", "penstock delete shop")(delete)
    service_command(app, "dismiss-error", "penstock dismiss-error shop")(dismiss_error)


def pipelines(session: Session) -> None:
    """List the pipelines of the service."""
    rows = session.client.get("pipelines", selector="status")
    columns = ("name", "status", "since", "wanted", "program", "storage", "error")
    session.out.answer(rows, table(columns, (_row(row) for row in rows)))


def _row(row: Row) -> tuple[str, ...]:
    status, wanted = row["deployment_status"], row["deployment_desired_status"]
    return (
        row["name"],
        status,
        since(row["deployment_status_since"]),
        "" if wanted == status else wanted,
        row["program_status"],
        row["storage_status"],
        first_line(row["deployment_error"]),
    )


def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new pipeline.")],
    program: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM", help="File with the SQL program.", exists=True, dir_okay=False, readable=True
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSON file with the runtime configuration.", exists=True, dir_okay=False
        ),
    ] = None,
    description: Annotated[str, typer.Option(help="What it is for.", metavar="TEXT")] = "",
    timeout: Timeout = None,
    no_wait: NoWait = False,
) -> None:
    """Make a pipeline, and wait until its program is compiled. It does not run yet: start it."""
    body = {
        "name": name,
        "program_code": read_program(program),
        "description": description,
        "runtime_config": None if config is None else read_json(config),
    }
    row = session.client.post("pipelines", body=body)
    if not no_wait:
        row = compiled(session, name, str(program), timeout)
    session.out.answer(row, f"Pipeline {name} is there. Start it: penstock start {name}")


def compiled(session: Session, name: str, place: str, timeout: float | None) -> Row:
    """The pipeline as soon as its program is compiled; fails with what is wrong with the program."""

    def look(say: Say) -> Row | None:
        row: Row = session.client.get("pipelines", name, selector="status")
        say(f"it is {row['program_status']}")
        return row if row["program_status"] in _COMPILED else None

    poll(session, look, f"the program of {name} is compiled", timeout)
    row: Row = session.client.get("pipelines", name)
    if row["program_status"] != "Success":
        error = wrong_program(row["program_error"], place, row["program_code"])
        error.hint = "The pipeline has this program. Give it another: penstock program set {name} FILE"
        raise error
    return row


def status(session: Session, name: Name) -> None:
    """Show how a pipeline is, and what is wrong if something is."""
    row = session.client.get("pipelines", name, selector="status")
    session.out.answer(row, facts((label, value) for label, value in _facts(row) if value))


def _facts(row: Row) -> list[tuple[str, Any]]:
    error = row["deployment_error"] or {}
    status_, wanted = row["deployment_status"], row["deployment_desired_status"]
    return [
        ("name", row["name"]),
        ("description", row["description"]),
        ("status", f"{status_}, since {since(row['deployment_status_since'])}"),
        ("wanted", "" if wanted == status_ else wanted),
        ("program", f"{row['program_status']}, version {row['program_version']}"),
        ("storage", row["storage_status"]),
        ("error", error.get("message")),
        ("error code", error.get("error_code")),
        *_details(row["deployment_runtime_status_details"]),
        *_replicas(row["deployment_resources_status_details"]),
    ]


def _replicas(details: Any) -> list[tuple[str, Any]]:
    """A line for each replica, if there are several."""
    found = details.get("replicas", []) if isinstance(details, dict) else []
    return [(f"replica {one['replica']}", _replica(one)) for one in found]


def _replica(one: Row) -> str:
    lag = f"{one['lag_seconds']} seconds behind" if one.get("lag_seconds") else ""
    said = [
        one.get("status", "not seen yet"),
        f"process {one['pid']}" if "pid" in one else "",
        "gets the requests" if one.get("requests") else "",
        "leads" if one.get("leads") else "",
        lag,
        (one.get("error") or {}).get("message"),
    ]
    return ", ".join(text for text in said if text)


def _details(details: Any) -> list[tuple[str, Any]]:
    """Why it is so, and what a changed program changes while somebody has to approve of it."""
    if not isinstance(details, dict):
        return []
    difference = (details.get("approval_diff") or {}).get("program_diff") or {}
    changes = [(kind.replace("_", " "), ", ".join(names)) for kind, names in difference.items()]
    return [("reason", details.get("reason")), *changes]


def clear(session: Session, name: Name, timeout: Timeout = None, no_wait: NoWait = False) -> None:
    """Delete the state of a stopped pipeline, for good. Its program stays, and it can start from nothing."""
    session.client.post("pipelines", name, "clear")
    storage_status = "Clearing"

    def look(_say: Say) -> str | None:
        row = session.client.get("pipelines", name, selector="status")
        return "Cleared" if row["storage_status"] == "Cleared" else None

    if not no_wait:
        storage_status = poll(session, look, f"the storage of {name} is cleared", timeout)
    session.out.answer(
        {"name": name, "storage_status": storage_status}, f"The storage of {name} is {storage_status}."
    )


def delete(session: Session, name: Name) -> None:
    """Delete a pipeline that is stopped and whose state is cleared."""
    session.client.delete("pipelines", name)
    session.out.answer({"name": name, "deleted": True}, f"Pipeline {name} is deleted.")


def dismiss_error(session: Session, name: Name) -> None:
    """Forget why a stopped pipeline failed. A start does that too."""
    session.client.post("pipelines", name, "dismiss_error")
    session.out.answer({"name": name, "deployment_error": None}, f"The error of {name} is forgotten.")
