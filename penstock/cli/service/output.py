"""What a command writes: the answer to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.text import Text

from penstock.cli.service.refusals import CommandError

_UNLIMITED = 1_000_000


class Form(StrEnum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"


class Output:
    """Everything that a command writes goes through here."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.terminal = Console(stderr=True, highlight=False)

    def answer(self, document: Any, text: RenderableType) -> None:
        """The answer, for a program or for a person."""
        if self.as_json:
            self.document(document)
        else:
            draw(text)

    def document(self, document: Any) -> None:
        self.line(json.dumps(document, indent=2))

    def line(self, text: str) -> None:
        """One line of the answer, at once."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def say(self, text: str | Text) -> None:
        """Something that is not part of the answer."""
        self.terminal.print(Text(text) if isinstance(text, str) else text, soft_wrap=True)

    def error(self, error: CommandError) -> None:
        if self.as_json:
            sys.stderr.write(json.dumps(error.plain()) + "\n")
            return
        self.say(error.shown())
        if error.hint is not None:
            self.say(f"{error.hint}.")


def draw(content: RenderableType) -> None:
    """On a terminal as wide as it is; anywhere else as wide as it needs to be, so that nothing is cut."""
    console = Console(highlight=False)
    if isinstance(content, str | Text):
        console.print(Text(content) if isinstance(content, str) else content, soft_wrap=True)
        return
    if not console.is_terminal:
        unlimited = console.options.update(max_width=_UNLIMITED)
        console.width = max(1, Measurement.get(console, unlimited, content).maximum)
    console.print(content)
