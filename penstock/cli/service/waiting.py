"""Waits until something is so, and shows on a terminal what it waits for if that takes a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.status import Status

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.problems import failure
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Session

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_SHOWN_AFTER_SECONDS = 2.0

T = TypeVar("T")
Row = dict[str, Any]
Say = Callable[[str], None]


def poll(session: Session, look: Callable[[Say], T | None], what: str, timeout: float | None) -> T:
    """What `look` finds, as soon as it finds something; it may say how far things are."""
    began = time.monotonic()
    pause = _FIRST_PAUSE
    with _shown(session.out.terminal, began, what) as say:
        while (found := look(say)) is None:
            left = None if timeout is None else began + timeout - time.monotonic()
            if left is not None and left <= 0:
                raise CommandError(
                    ExitCode.TIMEOUT, f"Not within {timeout:g} seconds: {what}. It goes on without you"
                )
            time.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
    return found


@contextmanager
def _shown(console: Console, began: float, what: str) -> Iterator[Say]:
    status: Status | None = None

    def say(text: str) -> None:
        nonlocal status
        seconds = time.monotonic() - began
        if not console.is_terminal or seconds < _SHOWN_AFTER_SECONDS:
            return
        line = f"Waiting for {seconds:.0f} s: {what} ({text})"
        if status is None:
            status = console.status(line)
            status.start()
        status.update(line)

    try:
        yield say
    finally:
        if status is not None:
            status.stop()


def pipeline(session: Session, name: str) -> Row:
    """How a pipeline is, without its program."""
    row: Row = session.client.get("pipelines", name, selector="status")
    return row


def wait_for(
    session: Session, name: str, until: Callable[[Row], bool], what: str, timeout: float | None
) -> Row:
    """The pipeline as soon as it is as it should be; fails as soon as it cannot become so."""

    def look(say: Say) -> Row | None:
        row = pipeline(session, name)
        if until(row):
            return row
        if is_stopped(row):
            raise _ended(session, name, row)
        say(f"it is {row['deployment_status']}")
        return None

    return poll(session, look, what, timeout)


def wait_for_status(session: Session, name: str, statuses: tuple[str, ...], timeout: float | None) -> Row:
    what = f"pipeline {name} becomes {' or '.join(statuses)}"
    row = wait_for(
        session,
        name,
        lambda row: row["deployment_status"] in (*statuses, "AwaitingApproval"),
        what,
        timeout,
    )
    if row["deployment_status"] == "AwaitingApproval":
        raise CommandError(
            ExitCode.REFUSED,
            f"Pipeline {name} waits for an approval: its program is not the one that its state was made by",
            code="AwaitingApproval",
            details=row["deployment_runtime_status_details"],
            hint="penstock status {name} shows what changes; go on with penstock approve {name}, or stop it",
        )
    return row


def is_stopped(row: Row) -> bool:
    return (row["deployment_status"], row["deployment_desired_status"]) == ("Stopped", "Stopped")


def _ended(session: Session, name: str, row: Row) -> CommandError:
    if row["deployment_error"] is None:
        return CommandError(ExitCode.FAILED, f"Pipeline {name} was stopped by someone else")
    return failure(session, name, row["deployment_error"])
