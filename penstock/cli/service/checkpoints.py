"""`penstock checkpoint take`, `status`, and `list` of a pipeline of the service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.drawing import facts, table
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Name, NoWait, Session, Timeout, service_command
from penstock.cli.service.waiting import Say, poll
from penstock.cli.units import size


def add_commands(group: typer.Typer) -> None:
    service_command(group, "take", "penstock checkpoint take shop --name before-migration")(take)
    service_command(group, "status", "penstock checkpoint status shop")(status)


def take(
    session: Session,
    name: Name,
    label: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="TEXT", help="Name of the checkpoint, under which it is kept until deleted."
        ),
    ] = None,
    timeout: Timeout = None,
    no_wait: NoWait = False,
) -> None:
    """Have a running pipeline of the service take a checkpoint."""
    asked = session.client.post("pipelines", name, "checkpoint", name=label)
    number = asked["checkpoint_sequence_number"]
    if not no_wait:
        _wait(session, name, number, timeout)
    session.out.answer(asked, f"Checkpoint {number} of {name} is {'asked for' if no_wait else 'taken'}.")


def _wait(session: Session, name: str, number: int, timeout: float | None) -> None:
    def look(_say: Say) -> dict[str, Any] | None:
        found: dict[str, Any] = session.client.get("pipelines", name, "checkpoint_status")
        failure = found["failure"]
        if failure is not None and failure["sequence_number"] == number:
            raise CommandError(ExitCode.FAILED, f"No checkpoint was taken: {failure['error']}")
        return found if (found["success"] or 0) >= number else None

    poll(session, look, f"checkpoint {number} of {name} is taken", timeout)


def status(session: Session, name: Name) -> None:
    """Show the last checkpoint that was asked for and taken, and the last that failed."""
    found = session.client.get("pipelines", name, "checkpoint_status")
    failure = found["failure"] or {}
    session.out.answer(
        found,
        facts(
            [
                ("taken", "none" if found["success"] is None else f"number {found['success']}"),
                ("failed", f"number {failure['sequence_number']}: {failure['error']}" if failure else "none"),
            ]
        ),
    )


def show_checkpoints(session: Session, name: str) -> None:
    """The checkpoints of a running pipeline of the service."""
    found = session.client.get("pipelines", name, "checkpoints")
    rows = (
        (one["uuid"], one["identifier"], one["steps"], one["processed_records"], size(one["size"] or 0))
        for one in found
    )
    session.out.answer(found, table(("checkpoint", "name", "transaction", "rows", "size"), rows))
