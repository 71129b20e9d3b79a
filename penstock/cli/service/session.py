"""A command that asks a service: the options that all of them have, and how they end."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service import DEFAULT_URL
from penstock.cli.service.completion import pipeline_names
from penstock.cli.service.output import Form, Output
from penstock.cli.service.refusals import CommandError

if TYPE_CHECKING:
    from penstock.cli.service.client import Client

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the pipeline.", autocompletion=pipeline_names)
]
NameOrStorage = Annotated[
    str,
    typer.Argument(
        metavar="NAME|STORAGE",
        help="Name of a pipeline of the service, or a storage directory.",
        autocompletion=pipeline_names,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Wait no longer than this. What was asked for goes on all the same.", min=0
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Ask for it, and do not wait until it is so.")]

_Url = Annotated[str, typer.Option(metavar="URL", help="Where the service is.", envvar="PENSTOCK_URL")]
_ApiKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="API key, if the service wants one; better given by the variable, which no other user sees.",
        envvar="PENSTOCK_API_KEY",
        show_default=False,
    ),
]
_Form = Annotated[Form, typer.Option("--format", help="How the answer is written.")]

P = ParamSpec("P")

PANEL = "Pipelines of a service"
"""Where the help lists commands that ask a service."""


def storage_of(given: str) -> Path | None:
    """A directory that is there is a storage directory; None: it is the name of a pipeline."""
    if Path(given).is_dir():
        return Path(given)
    if os.sep in given or given.startswith("."):
        raise CommandError(
            ExitCode.USAGE, f"{given} is neither a directory that is there nor the name of a pipeline"
        )
    return None


@dataclass(frozen=True)
class Session:
    """What a command has to do with: the service, and what it writes to."""

    url: str
    api_key: str | None = field(repr=False)
    out: Output

    @cached_property
    def client(self) -> Client:
        from penstock.cli.service.client import Client

        return Client(self.url, self.api_key)

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()


def service_command(
    app: typer.Typer, name: str, example: str
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Make a function a command, with the options of all commands that ask a service.

    A function that has a parameter `form` of its own has other forms of answers than most.
    """

    def decorate(
        function: Callable[Concatenate[Session, P], None],
    ) -> Callable[Concatenate[Session, P], None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        has_form = any(parameter.name == "form" for parameter in own)

        def command(**arguments: Any) -> None:
            url, api_key = arguments.pop("url"), arguments.pop("api_key")
            form = arguments["form"] if has_form else arguments.pop("form")
            _run(function, Session(url, api_key, Output(as_json=form == Form.JSON)), arguments)

        options = [
            _option("url", _Url, DEFAULT_URL),
            _option("api_key", _ApiKey, None),
            *([] if has_form else [_option("form", _Form, Form.TEXT)]),
        ]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + options
        command.__doc__ = function.__doc__
        command.__name__ = function.__name__
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, epilog=f"Example: {example}", rich_help_panel=PANEL)(command)
        return function

    return decorate


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _run(function: Callable[..., None], session: Session, arguments: dict[str, Any]) -> None:
    try:
        function(session, **arguments)
    except CommandError as error:
        if error.hint is not None:
            error.hint = error.hint.format(name=arguments.get("name"))
        session.out.error(error)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except BrokenPipeError:
        # Who reads our output has enough of it; Python must not try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        session.close()
