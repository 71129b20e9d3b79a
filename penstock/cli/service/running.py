"""`penstock start`, `stop`, `restart`, `pause`, `resume`, `activate` and `approve`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.problems import failure
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Name, NoWait, Session, Timeout, service_command
from penstock.cli.service.waiting import Row, Say, is_stopped, pipeline, poll, wait_for, wait_for_status
from penstock.service.statuses import BootstrapPolicy

Bootstrap = Annotated[
    BootstrapPolicy,
    typer.Option(help="What to do if the program changed since the state was made: fill the views anew?"),
]
Force = Annotated[bool, typer.Option("--force", help="End its process at once, without a checkpoint.")]


def add_commands(app: typer.Typer) -> None:
    service_command(app, "start", "penstock start shop --paused")(start)
    service_command(app, "stop", "penstock stop shop --timeout 60")(stop)
    service_command(app, "restart", "penstock restart shop")(restart)
    service_command(app, "pause", "penstock pause shop")(pause)
    service_command(app, "activate", "penstock activate shop")(activate)
    service_command(app, "approve", "penstock approve shop")(approve)


def start(
    session: Session,
    name: Name,
    paused: Annotated[bool, typer.Option("--paused", help="Take in nothing until it is resumed.")] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Follow the copies in an object store, until it is activated.")
    ] = False,
    bootstrap: Bootstrap = BootstrapPolicy.ALLOW,
    timeout: Timeout = None,
    no_wait: NoWait = False,
) -> None:
    """Start a pipeline, and wait until it runs."""
    if paused and standby:
        raise CommandError(ExitCode.USAGE, "A pipeline starts paused or as standby, not both")
    initial = "paused" if paused else "standby" if standby else "running"
    _ask_to_start(session, name, initial, bootstrap)
    # One that was activated before does not fall back: it runs.
    reached = ("Standby", "Running") if standby else (initial.capitalize(),)
    _reach(session, name, reached, timeout, no_wait=no_wait)


def stop(
    session: Session, name: Name, force: Force = False, timeout: Timeout = None, no_wait: NoWait = False
) -> None:
    """Stop a pipeline, and wait until it is stopped: it finishes what it took in, and takes a checkpoint."""
    before = pipeline(session, name)
    session.client.post("pipelines", name, "stop", force=force)
    if not no_wait and not is_stopped(before):
        _wait_until_stopped(session, name, timeout)
    _tell(session, name)


def restart(
    session: Session,
    name: Name,
    force: Force = False,
    bootstrap: Bootstrap = BootstrapPolicy.ALLOW,
    timeout: Timeout = None,
) -> None:
    """Stop a pipeline and start it again. It runs then, also if it was paused or stopped before."""
    before = pipeline(session, name)
    session.client.post("pipelines", name, "stop", force=force)
    if not is_stopped(before):
        _wait_until_stopped(session, name, timeout)
    _ask_to_start(session, name, "running", bootstrap)
    _reach(session, name, ("Running",), timeout, no_wait=False)


def pause(session: Session, name: Name, timeout: Timeout = None, no_wait: NoWait = False) -> None:
    """Have a running pipeline take in nothing more, until it is resumed. Queries go on."""
    session.client.post("pipelines", name, "pause")
    _reach(session, name, ("Paused",), timeout, no_wait=no_wait)


def resume(session: Session, name: str, skip: int | None, timeout: float | None, *, no_wait: bool) -> None:
    """Have a paused pipeline take in again; perhaps without a transaction that cannot be evaluated."""
    session.client.post("pipelines", name, "resume", skip_transaction=skip)
    _reach(session, name, ("Running",), timeout, no_wait=no_wait)


def activate(
    session: Session,
    name: Name,
    paused: Annotated[bool, typer.Option("--paused", help="Take in nothing until it is resumed.")] = False,
    timeout: Timeout = None,
    no_wait: NoWait = False,
) -> None:
    """Have a standby take over."""
    initial = "paused" if paused else "running"
    session.client.post("pipelines", name, "activate", initial=initial)
    if not no_wait:
        wait_for(session, name, activated, f"pipeline {name} is activated", timeout)
    _reach(session, name, (initial.capitalize(),), timeout, no_wait=no_wait)


def activated(row: Row) -> bool:
    """Whether it stands by no longer; raises why it still does."""
    failed = (row["deployment_runtime_status_details"] or {}).get("activation_error")
    if row["deployment_status"] == "Standby" and failed:
        raise CommandError(
            ExitCode.FAILED,
            f"It could not be activated, and stands by as before: {failed}",
            code="ActivationFailed",
        )
    return bool(row["deployment_status"] != "Standby")


def approve(session: Session, name: Name, timeout: Timeout = None, no_wait: NoWait = False) -> None:
    """Let a pipeline whose program changed go on: the changed views are filled anew."""
    session.client.post("pipelines", name, "approve")
    if not no_wait:
        poll(
            session,
            lambda _say: pipeline(session, name)["deployment_status"] != "AwaitingApproval" or None,
            f"pipeline {name} goes on",
            timeout,
        )
    _reach(session, name, ("Running", "Paused"), timeout, no_wait=no_wait)


def _ask_to_start(session: Session, name: str, initial: str, bootstrap: BootstrapPolicy) -> None:
    session.client.post("pipelines", name, "start", initial=initial, bootstrap_policy=bootstrap.value)


def _reach(
    session: Session, name: str, statuses: tuple[str, ...], timeout: float | None, *, no_wait: bool
) -> None:
    if not no_wait:
        wait_for_status(session, name, statuses, timeout)
    _tell(session, name)


def _wait_until_stopped(session: Session, name: str, timeout: float | None) -> None:
    def look(say: Say) -> Row | None:
        row = pipeline(session, name)
        say(f"it is {row['deployment_status']}")
        return row if is_stopped(row) else None

    row = poll(session, look, f"pipeline {name} stops", timeout)
    if row["deployment_error"] is not None:
        raise failure(session, name, row["deployment_error"])


def _tell(session: Session, name: str) -> None:
    row = pipeline(session, name)
    status = row["deployment_status"]
    session.out.answer(
        {"name": name, "status": status, "desired_status": row["deployment_desired_status"]},
        f"Pipeline {name} is {status}.",
    )
