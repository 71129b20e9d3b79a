"""`penstock connector`: the inputs and outputs of a running pipeline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.drawing import facts
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import PANEL, Name, Session, service_command

connector = typer.Typer(help="Start and pause inputs, and see how connectors are.", no_args_is_help=True)

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Table of the connector.")]
ConnectorName = Annotated[str, typer.Argument(metavar="CONNECTOR", help="Name of the connector.")]


def add_commands(app: typer.Typer) -> None:
    service_command(connector, "start", "penstock connector start shop orders orders_file")(start)
    service_command(connector, "pause", "penstock connector pause shop orders orders_file")(pause)
    service_command(connector, "stats", "penstock connector stats shop orders orders_file")(stats)
    app.add_typer(connector, name="connector", rich_help_panel=PANEL)


def start(session: Session, name: Name, table: TableName, connector: ConnectorName) -> None:
    """Have a paused input read again."""
    _act(session, name, table, connector, "start")
    session.out.answer({"connector": connector, "paused": False}, f"Connector {connector} reads.")


def pause(session: Session, name: Name, table: TableName, connector: ConnectorName) -> None:
    """Have an input read nothing more, until it is started."""
    _act(session, name, table, connector, "pause")
    session.out.answer({"connector": connector, "paused": True}, f"Connector {connector} is paused.")


def stats(
    session: Session,
    name: Name,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table or view of the connector.")],
    connector: ConnectorName,
) -> None:
    """Show how a connector of a table or of a view is."""
    try:
        found = session.client.get("pipelines", name, "tables", table, "connectors", connector, "stats")
    except CommandError as error:
        if error.exit_code != ExitCode.NOT_FOUND or error.code == "UnknownPipelineName":
            raise
        found = session.client.get("pipelines", name, "views", table, "connectors", connector, "stats")
    session.out.answer(found, facts(_facts(found)))


def _facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    health = found["health"]
    pairs = [("connector", found["endpoint_name"]), ("health", health["status"])]
    if health["description"]:
        pairs.append(("because", health["description"]))
    if "paused" in found:
        pairs.append(("paused", found["paused"]))
    counts = [(field.replace("_", " "), count) for field, count in found["metrics"].items()]
    errors = [*found.get("parse_errors", []), *found.get("transport_errors", [])]
    return [*pairs, *counts, *(("error", error["message"]) for error in errors)]


def _act(session: Session, name: str, table: str, connector: str, action: str) -> None:
    session.client.post("pipelines", name, "tables", table, "connectors", connector, action)
