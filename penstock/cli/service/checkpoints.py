"""`penstock checkpoint take`, `status`, `sync`, `sync-status`, `remote`, and `list` of a pipeline of the
service."""

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
    service_command(group, "sync", "penstock checkpoint sync shop")(sync)
    service_command(group, "sync-status", "penstock checkpoint sync-status shop")(sync_status)
    service_command(group, "remote", "penstock checkpoint remote shop")(remote)


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


def sync(session: Session, name: Name, timeout: Timeout = None, no_wait: NoWait = False) -> None:
    """Have a running pipeline copy its newest checkpoint to its object store."""
    asked = session.client.post("pipelines", name, "checkpoint", "sync")
    id_ = asked["checkpoint_uuid"]

    def look(_say: Say) -> dict[str, Any] | None:
        found: dict[str, Any] = session.client.get("pipelines", name, "checkpoint", "sync_status")
        failure = found["failure"]
        if failure is not None and failure["uuid"] == id_:
            raise CommandError(ExitCode.FAILED, f"The checkpoint was not copied: {failure['error']}")
        return found if id_ in (found["success"], found["periodic"]) else None

    if not no_wait:
        poll(session, look, f"checkpoint {id_} of {name} is copied", timeout)
    session.out.answer(asked, f"Checkpoint {id_} of {name} is {'being copied' if no_wait else 'copied'}.")


def sync_status(session: Session, name: Name) -> None:
    """Show the last checkpoints that were copied to the object store, and the last failure."""
    found = session.client.get("pipelines", name, "checkpoint", "sync_status")
    failure = found["failure"] or {}
    session.out.answer(
        found,
        facts(
            [
                ("on request", found["success"] or "none"),
                ("by the clock", found["periodic"] or "none"),
                ("failed", f"{failure['uuid']}: {failure['error']}" if failure else "none"),
            ]
        ),
    )


def remote(session: Session, name: Name) -> None:
    """Show the checkpoints in the object store of a running pipeline."""
    found = session.client.get("pipelines", name, "checkpoints", "remote")
    rows = (
        (one["uuid"], one["identifier"], one["steps"], one["at"], size(one["size"] or 0)) for one in found
    )
    session.out.answer(found, table(("checkpoint", "name", "transaction", "at", "size"), rows))


def show_checkpoints(session: Session, name: str) -> None:
    """The checkpoints of a running pipeline of the service."""
    found = session.client.get("pipelines", name, "checkpoints")
    rows = (
        (one["uuid"], one["identifier"], one["steps"], one["processed_records"], size(one["size"] or 0))
        for one in found
    )
    session.out.answer(found, table(("checkpoint", "name", "transaction", "rows", "size"), rows))
