"""All commands that ask a service."""

from __future__ import annotations

import typer

from penstock.cli.service import (
    configs,
    connectors,
    ingesting,
    keys,
    listening,
    pipelines,
    programs,
    querying,
    running,
    shell,
    transactions,
    watching,
)

_GROUPS = (
    pipelines,
    running,
    watching,
    querying,
    shell,
    ingesting,
    listening,
    transactions,
    connectors,
    programs,
    configs,
    keys,
)


def add_commands(app: typer.Typer) -> None:
    for group in _GROUPS:
        group.add_commands(app)
