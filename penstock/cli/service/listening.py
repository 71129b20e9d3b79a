"""`penstock listen`: the changes of a view as they happen."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.output import Output
from penstock.cli.service.problems import failure
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Name, Session, service_command
from penstock.cli.service.waiting import Row, Say, pipeline, poll

_GOES_ON = ("Running", "Paused", "Unavailable")
_NOTICED_SECONDS = 5.0
_MARKS = {"insert": "+", "delete": "-"}


def add_commands(app: typer.Typer) -> None:
    service_command(app, "listen", "penstock listen shop by_region --snapshot")(listen)


def listen(
    session: Session,
    name: Name,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="View or table to follow.")],
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Begin with the rows that it has now, as if they came in.")
    ] = False,
) -> None:
    """Show the changes of a view as they happen: + for a row that came, - for one that went.

    It goes on until Ctrl-C, which is how it is meant to end (exit code 0), or until the pipeline stops.
    """
    try:
        with session.client.stream(
            "POST", "pipelines", name, "egress", view, query={"format": "json", "send_snapshot": snapshot}
        ) as answer:
            for line in answer.iter_lines():
                _write(session.out, line)
    except KeyboardInterrupt:
        return
    except CommandError as error:
        if error.exit_code != ExitCode.UNREACHABLE or error.code is not None:
            raise
        _say_why(session, name, error)
        return
    _say_why(session, name, None)


def _write(out: Output, line: str) -> None:
    if not line.strip():
        return
    if out.as_json:
        out.line(line)
        return
    for change in json.loads(line).get("json_data") or []:
        for kind, row in change.items():
            out.line(f"{_MARKS.get(kind, kind)} {json.dumps(row, ensure_ascii=False)}")


def _say_why(session: Session, name: str, broken: CommandError | None) -> None:
    """The stream ended before anyone asked for it; the service may need a moment to notice why."""

    def look(_say: Say) -> Row | None:
        row = pipeline(session, name)
        goes_on = row["deployment_status"] in _GOES_ON and row["deployment_desired_status"] in _GOES_ON
        return None if goes_on and row["deployment_error"] is None else row

    try:
        row = poll(session, look, "the service notices", _NOTICED_SECONDS)
    except CommandError as error:
        if error.exit_code != ExitCode.TIMEOUT:
            raise
        raise broken or CommandError(ExitCode.UNREACHABLE, "The service ended the stream") from error
    if row["deployment_error"] is not None:
        raise failure(session, name, row["deployment_error"])
    session.out.say(f"The changes end here: pipeline {name} is {row['deployment_status']}.")
