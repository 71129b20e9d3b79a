"""`penstock config`: the runtime configuration of a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.documents import read_json
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import PANEL, Name, Session, service_command

config = typer.Typer(help="Read and change the configuration of a pipeline.", no_args_is_help=True)


def add_commands(app: typer.Typer) -> None:
    service_command(config, "get", "penstock config get shop > shop.json")(get)
    service_command(config, "set", "penstock config set shop workers=4 storage.compression=snappy")(set_)
    app.add_typer(config, name="config", rich_help_panel=PANEL)


def get(session: Session, name: Name) -> None:
    """Write the runtime configuration of a pipeline, as JSON in any case."""
    session.out.document(session.client.get("pipelines", name)["runtime_config"])


def set_(
    session: Session,
    name: Name,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="SETTING=VALUE", help="Settings to change; VALUE is JSON, or else a text."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON file with a whole configuration; - for what is piped in. Others become"
            " what they are by default.",
        ),
    ] = None,
) -> None:
    """Change the runtime configuration of a stopped pipeline."""
    if not settings and file is None:
        raise CommandError(ExitCode.USAGE, "Nothing to change: give SETTING=VALUE, or --file")
    current = session.client.get("pipelines", name)["runtime_config"] if file is None else read_json(file)
    if not isinstance(current, dict):
        raise CommandError(ExitCode.USAGE, f"{file} is no configuration: it is not a JSON object")
    for setting in settings or []:
        _change(current, setting)
    row = session.client.patch("pipelines", name, body={"runtime_config": current})
    session.out.answer(row["runtime_config"], f"Pipeline {name} has the configuration.")


def _change(config: dict[str, Any], setting: str) -> None:
    """`a.b=1` changes `b` of the section `a`."""
    path, sign, value = setting.partition("=")
    *sections, field = path.split(".")
    if not sign or not field:
        raise CommandError(ExitCode.USAGE, f"{setting!r} is not SETTING=VALUE, such as workers=4")
    place = config
    for section in sections:
        if not isinstance(place.get(section), dict):
            place[section] = {}
        place = place[section]
    place[field] = _value(value)


def _value(text: str) -> Any:
    """JSON, or else the text itself.

    >>> [_value(text) for text in ("4", "true", "null", "snappy")]
    [4, True, None, 'snappy']
    """
    try:
        return json.loads(text)
    except ValueError:
        return text
