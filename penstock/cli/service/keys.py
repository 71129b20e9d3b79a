"""`penstock apikey`: who may ask the service."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.service.drawing import table
from penstock.cli.service.session import PANEL, Session, service_command

apikey = typer.Typer(help="Make, list and take back API keys.", no_args_is_help=True)

KeyName = Annotated[str, typer.Argument(metavar="KEY_NAME", help="Name of the key; not the key itself.")]


class Role(StrEnum):
    READ = "read"
    WRITE = "write"


def add_commands(app: typer.Typer) -> None:
    service_command(apikey, "create", "penstock apikey create dashboard --role read")(create)
    service_command(apikey, "list", "penstock apikey list")(list_)
    service_command(apikey, "delete", "penstock apikey delete dashboard")(delete)
    app.add_typer(apikey, name="apikey", rich_help_panel=PANEL)


def create(
    session: Session,
    key_name: KeyName,
    role: Annotated[Role, typer.Option(help="Whether it may change things too.")] = Role.WRITE,
) -> None:
    """Make a key, and write it. It is shown now and never again."""
    found = session.client.post("api_keys", body={"name": key_name, "role": role.value})
    session.out.answer(found, str(found["api_key"]))
    session.out.say("Keep it: the service does not show it again.")


def list_(session: Session) -> None:
    """List the keys by name; the keys themselves are not kept."""
    found = session.client.get("api_keys")
    session.out.answer(found, table(("name", "role"), ((key["name"], key["role"]) for key in found)))


def delete(session: Session, key_name: KeyName) -> None:
    """Take a key back: from now on it opens nothing."""
    session.client.delete("api_keys", key_name)
    session.out.answer({"name": key_name, "deleted": True}, f"API key {key_name} is deleted.")
