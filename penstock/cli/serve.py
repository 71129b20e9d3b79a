"""`penstock serve`: pipelines for everyone who speaks HTTP."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Annotated

import typer
from rich import get_console
from rich.text import Text

from penstock.cli.report import errors_shown
from penstock.service.manager.settings import MEBIBYTE, Settings

_AGAIN_SECONDS = 5.0


def serve(
    directory: Annotated[
        Path, typer.Option(help="Where pipelines keep their state.", file_okay=False)
    ] = Path("penstock-service"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8080,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="postgresql://USER@HOST/NAME; a SQLite file in the directory if not given.",
            envvar="PENSTOCK_DATABASE",
        ),
    ] = None,
    spares: Annotated[
        int, typer.Option(help="Processes with Spark already up, which make starts fast.", min=0, max=16)
    ] = 1,
    spare_workers: Annotated[
        int, typer.Option(help="Number of workers that a spare is started with.", min=1, max=1024)
    ] = 8,
    auth: Annotated[
        bool, typer.Option("--auth", help="Require API keys; always so beyond this machine.")
    ] = False,
    allow_path: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Where connectors may read and write files when API keys are required, besides `files` in"
            " the service's directory. May be given more than once.",
        ),
    ] = None,
    secrets: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="A file for each ${secret:NAME}; `secrets` in the service's directory if not given.",
            file_okay=False,
        ),
    ] = None,
    max_body: Annotated[
        int, typer.Option(metavar="MIB", help="Largest body of rows pushed into a table, in MiB.", min=1)
    ] = 1024,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How the log is written.")] = "text",
) -> None:
    """Serve pipelines over HTTP until Ctrl-C, which stops each with a checkpoint."""
    from penstock.service.manager.server import serve as serve_forever

    _log_as(log_format)
    settings = Settings(
        directory=directory.absolute(),
        host=host,
        port=port,
        database=database,
        spares=spares,
        spare_workers=spare_workers,
        auth=auth,
        allow_paths=tuple(path.absolute() for path in allow_path or ()),
        secrets=secrets and secrets.absolute(),
        log_format=log_format,
        max_ingress_bytes=max_body * MEBIBYTE,
    )
    with errors_shown(directory, ""):
        serve_forever(settings, _Teller().say)


class _Teller:
    """Says each thing once, and again only after a while."""

    def __init__(self) -> None:
        self._last = ""
        self._at = 0.0

    def say(self, text: str) -> None:
        if text == self._last and time.monotonic() - self._at < _AGAIN_SECONDS:
            return
        self._last, self._at = text, time.monotonic()
        get_console().print(Text(text), soft_wrap=True)


def _log_as(form: str) -> None:
    from penstock.service.lines import FORMS, formatter

    if form not in FORMS:
        raise typer.BadParameter("a log is written as text or json", param_hint="--log-format")
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
