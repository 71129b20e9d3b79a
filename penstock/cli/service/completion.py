"""Names of pipelines for the shell, which asks while someone types: quick, or silent."""

from __future__ import annotations

from typing import Any

import typer

from penstock.cli.service import DEFAULT_URL
from penstock.cli.service.refusals import CommandError

_SECONDS = 1.0


def pipeline_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those that begin like this; none if no service answers at once."""
    from penstock.cli.service.client import Client

    url, api_key = ctx.params.get("url") or DEFAULT_URL, ctx.params.get("api_key")
    try:
        client = Client(url, api_key, seconds=_SECONDS)
        found: list[dict[str, Any]] = client.get("pipelines", selector="status")
    except CommandError:
        return []  # a message would stand in the line that is typed
    client.close()
    return [row["name"] for row in found if row["name"].startswith(incomplete)]
