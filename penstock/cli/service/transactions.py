"""`penstock transaction`: rows that take effect together, or not at all."""

from __future__ import annotations

from typing import Any

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.drawing import facts
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import PANEL, Name, NoWait, Session, Timeout, service_command
from penstock.cli.service.waiting import Say, pipeline, poll

transaction = typer.Typer(
    help="Open, commit and roll back a transaction of a running pipeline.", no_args_is_help=True
)


def add_commands(app: typer.Typer) -> None:
    service_command(transaction, "start", "penstock transaction start shop")(start)
    service_command(transaction, "commit", "penstock transaction commit shop --timeout 60")(commit)
    service_command(transaction, "rollback", "penstock transaction rollback shop")(rollback)
    service_command(transaction, "status", "penstock transaction status shop")(status)
    app.add_typer(transaction, name="transaction", rich_help_panel=PANEL)


def start(session: Session, name: Name) -> None:
    """Open a transaction: what comes in from now on takes effect when it is committed."""
    found = session.client.post("pipelines", name, "start_transaction")
    session.out.answer(found, f"Transaction {found['transaction_id']} is open.")


def commit(session: Session, name: Name, timeout: Timeout = None, no_wait: NoWait = False) -> None:
    """Commit the open transaction, and wait until it took effect."""
    number = _figures(session, name)["transaction_id"]
    was_paused = pipeline(session, name)["deployment_status"] == "Paused"
    session.client.post("pipelines", name, "commit_transaction")
    if not no_wait:
        _wait(session, name, number, timeout, was_paused=was_paused)
    done = "is being committed" if no_wait else "is committed"
    session.out.answer({"transaction_id": number, "committed": not no_wait}, f"Transaction {number} {done}.")


def _wait(session: Session, name: str, number: int, timeout: float | None, *, was_paused: bool) -> None:
    """A transaction that cannot be evaluated pauses the pipeline."""

    def look(_say: Say) -> bool | None:
        found = _figures(session, name)
        if found["transaction_status"] == "NoTransaction" or found["transaction_id"] != number:
            return True
        if found["state"] == "Paused" and not was_paused:
            raise CommandError(
                ExitCode.FAILED,
                f"Transaction {number} could not be evaluated, and pipeline {name} is paused",
                hint="Its log says why: penstock logs {name}. Try again with penstock resume {name},"
                f" or go on without it with --skip-transaction {number}",
            )
        return None

    poll(session, look, f"transaction {number} is committed", timeout)


def rollback(session: Session, name: Name) -> None:
    """Give up the open transaction: nothing of it takes effect."""
    found = session.client.post("pipelines", name, "rollback_transaction")
    session.out.answer(found, f"Transaction {found['transaction_id']} is rolled back.")


def status(session: Session, name: Name) -> None:
    """Show whether a transaction is open, and how many rows it has."""
    found = _figures(session, name)
    fields = ("transaction_status", "transaction_id", "transaction_records")
    is_open = found["transaction_status"] != "NoTransaction"
    pairs = [("status", found["transaction_status"])]
    if is_open:
        pairs += [("number", found["transaction_id"]), ("rows", found["transaction_records"])]
    session.out.answer({field: found[field] for field in fields}, facts(pairs))


def _figures(session: Session, name: str) -> dict[str, Any]:
    found: dict[str, Any] = session.client.get("pipelines", name, "stats")["global_metrics"]
    return found
