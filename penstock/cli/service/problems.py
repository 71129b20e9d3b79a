"""What is wrong with a program or a pipeline, as a person reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from penstock.cli.exit_codes import ExitCode
from penstock.cli.report import marked
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Session

_PLACE = re.compile(r"^line \d+, column \d+: ")


def failure(session: Session, name: str, error: Mapping[str, Any]) -> CommandError:
    """Why a pipeline stopped by itself."""
    details = error.get("details")
    compiler_error = details.get("compiler_error") if isinstance(details, dict) else None
    if compiler_error is not None:
        row = session.client.get("pipelines", name)
        return wrong_program(compiler_error, f"program of {name}", row["program_code"])
    return CommandError(
        ExitCode.FAILED,
        str(error["message"]),
        code=str(error["error_code"]),
        details=details,
        hint="Its log says more: penstock logs {name}. Start it again with penstock start {name}",
    )


def wrong_program(program_error: Mapping[str, Any], place: str, text: str) -> CommandError:
    """A program that does not compile, with every place in it that is wrong."""
    system_error = program_error.get("system_error")
    if system_error is not None:
        return CommandError(
            ExitCode.FAILED,
            f"The program could not be compiled: {system_error}",
            code="SystemError",
            details=program_error,
        )
    messages = program_error["sql_compilation"]["messages"]
    shown = Text("\n").join(_shown(message, place, text) for message in messages)
    return WrongProgramError(shown, program_error)


class WrongProgramError(CommandError):
    """A program has errors, and this has all of them."""

    def __init__(self, shown: Text, program_error: Mapping[str, Any]) -> None:
        super().__init__(ExitCode.FAILED, shown.plain, code="SqlError", details=program_error)
        self._shown = shown

    def shown(self) -> Text:
        return self._shown


def _shown(message: Mapping[str, Any], place: str, text: str) -> Text:
    code = str(message["error_type"]).upper().replace(" ", "_")
    said = _PLACE.sub("", str(message["message"]))
    return marked(code, said, place, text, message["start_line_number"], message["start_column"])
