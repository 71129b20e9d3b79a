"""`penstock stats`, `metrics`, `logs`, `events` and `support-bundle`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from penstock.cli.service.drawing import facts, first_line, table
from penstock.cli.service.files import write_stream
from penstock.cli.service.session import Name, Session, service_command
from penstock.cli.units import size


def add_commands(app: typer.Typer) -> None:
    service_command(app, "stats", "penstock stats shop")(stats)
    service_command(app, "metrics", "penstock metrics shop > shop.prom")(metrics)
    service_command(app, "logs", "penstock logs shop --follow")(logs)
    service_command(app, "events", "penstock events shop")(events)
    service_command(app, "support-bundle", "penstock support-bundle shop -o shop.zip")(support_bundle)


def stats(session: Session, name: Name) -> None:
    """Show what a running pipeline has done, and how its connectors are."""
    found = session.client.get("pipelines", name, "stats")
    session.out.answer(found, _drawn_stats(found))


_INPUT = ("input", "rows", "waiting", "bad records", "errors", "ended", "paused", "health")
_OUTPUT = ("output", "rows", "behind", "errors", "health")


def _drawn_stats(found: dict[str, Any]) -> RenderableType:
    metrics_ = found["global_metrics"]
    parts: list[RenderableType] = [
        facts(
            [
                ("state", metrics_["state"]),
                ("rows in", metrics_["total_input_records"]),
                ("rows processed", metrics_["total_processed_records"]),
                ("rows waiting", metrics_["buffered_input_records"]),
                ("transactions", metrics_["total_completed_steps"]),
                ("transaction", metrics_["transaction_status"]),
                ("all inputs ended", metrics_["pipeline_complete"]),
                ("memory", size(metrics_["rss_bytes"])),
                ("state on disk", size(metrics_["storage_bytes"])),
            ]
        )
    ]
    if found["inputs"]:
        parts.append(table(_INPUT, (_input(one) for one in found["inputs"])))
    if found["outputs"]:
        parts.append(table(_OUTPUT, (_output(one) for one in found["outputs"])))
    return Group(*parts)


def _input(one: dict[str, Any]) -> tuple[Any, ...]:
    counts = one["metrics"]
    return (
        one["endpoint_name"],
        counts["total_records"],
        counts["buffered_records"],
        counts["num_parse_errors"],
        counts["num_transport_errors"],
        "yes" if counts["end_of_input"] else "no",
        "yes" if one["paused"] else "no",
        _health(one),
    )


def _output(one: dict[str, Any]) -> tuple[Any, ...]:
    counts = one["metrics"]
    return (
        one["endpoint_name"],
        counts["transmitted_records"],
        counts["queued_batches"],
        counts["num_transport_errors"],
        _health(one),
    )


def _health(one: dict[str, Any]) -> str:
    health = one["health"]
    return f"{health['status']}: {health['description']}" if health["description"] else str(health["status"])


def metrics(session: Session, name: Name) -> None:
    """Show the figures of a running pipeline: as Prometheus reads them, or as JSON."""
    if session.out.as_json:
        session.out.document(session.client.get("pipelines", name, "metrics", format="json"))
    else:
        answer = session.client.request("GET", "pipelines", name, "metrics")
        session.out.line(answer.text.rstrip("\n"))


def logs(
    session: Session,
    name: Name,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written from now on, until Ctrl-C.")
    ] = False,
) -> None:
    """Show what the processes of a pipeline wrote. With --follow Ctrl-C is the way to end it: exit code 0."""
    query = {"follow": follow}
    with session.client.stream("GET", "pipelines", name, "logs", query=query) as answer:
        try:
            for line in answer.iter_lines():
                session.out.line(json.dumps({"line": line}) if session.out.as_json else line)
        except KeyboardInterrupt:
            if not follow:
                raise


def events(session: Session, name: Name) -> None:
    """Show how the states of a pipeline changed, the latest first."""
    found = session.client.get("pipelines", name, "events", selector="all")
    columns = ("time", "process", "wanted", "pipeline", "wanted", "program", "storage", "error")
    session.out.answer(found, table(columns, _event_rows(found)))


def _event_rows(found: Iterable[dict[str, Any]]) -> Iterable[tuple[str | None, ...]]:
    for event in found:
        yield (
            event["recorded_at"],
            event["deployment_resources_status"],
            event["deployment_resources_desired_status"],
            event["deployment_runtime_status"],
            event["deployment_runtime_desired_status"],
            event["program_status"],
            event["storage_status"],
            first_line(event["deployment_error"]),
        )


def support_bundle(
    session: Session,
    name: Name,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where it is written; NAME-support-bundle.zip if not given.",
        ),
    ] = None,
) -> None:
    """Write a zip file with what a maintainer needs to know of a pipeline, and no secret."""
    path = output or Path(f"{name}-support-bundle.zip")
    with session.client.stream("GET", "pipelines", name, "support_bundle") as answer:
        written = write_stream(path, answer.iter_bytes())
    session.out.answer({"file": str(path), "bytes": written}, f"{path} has {size(written)}.")
