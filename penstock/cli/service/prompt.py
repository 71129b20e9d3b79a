"""Lines that someone types: with history that outlives the shell, where there is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

try:
    import readline
except ImportError:  # some builds of Python have none; then there is no history
    readline = None  # type: ignore[assignment]

_KEPT = 2_000


def history_file() -> Path:
    """Where what was typed is kept."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "penstock" / "shell-history"


class Prompt:
    """Asks for lines, and remembers statements, for their user alone: they may have secrets."""

    def __init__(self, words: Iterable[str]) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._path = history_file()
        self._words = sorted(words)
        if self.is_terminal and readline is not None:
            self._prepare()

    def line(self, prompt: str) -> str:
        """The next line; raises EOFError at the end, and KeyboardInterrupt at Ctrl-C."""
        return input(prompt if self.is_terminal else "")

    def remember(self, text: str) -> None:
        """A statement is one entry, which can be called back as a whole."""
        if not self.is_terminal or readline is None:
            return
        entries = text.splitlines() if "--" in text else [" ".join(text.split("\n"))]
        for entry in entries:
            readline.add_history(entry)
        try:
            self._make_private()
            readline.set_history_length(_KEPT)
            readline.write_history_file(self._path)
        except OSError:
            pass  # a shell without a memory is still a shell

    def _prepare(self) -> None:
        readline.set_auto_history(False)
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n,;()=<>+-*/.")
        readline.parse_and_bind("tab: complete")
        try:
            self._make_private()
            readline.read_history_file(self._path)
        except OSError:
            pass

    def _make_private(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._path.chmod(0o600)

    def _complete(self, begin: str, number: int) -> str | None:
        found = [word for word in self._words if word.lower().startswith(begin.lower())]
        return found[number] if number < len(found) else None
