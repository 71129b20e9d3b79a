"""Calls of the real command, as a user's shell makes them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

COMMAND = [sys.executable, "-m", "penstock.cli"]


@dataclass(frozen=True)
class Ended:
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Commands:
    """`penstock` with the URL of a service in its environment."""

    def __init__(self, url: str, home: Path, **more: str) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.environment = {
            **kept,
            "PENSTOCK_URL": url,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "COLUMNS": "100",
            "TERM": "dumb",
            **more,
        }

    def __call__(self, *arguments: object, given: str | bytes | None = None, **more: str) -> Ended:
        content = given.encode() if isinstance(given, str) else given
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=b"" if content is None else content,
            capture_output=True,
            env=self.environment | more,
            timeout=60,
            check=False,
        )
        out = done.stdout.decode(errors="surrogateescape")
        ended = Ended(done.returncode, out, done.stderr.decode())
        assert "Traceback" not in ended.err, ended.err
        return ended

    def ok(self, *arguments: object, **options: Any) -> Ended:
        ended = self(*arguments, **options)
        assert ended.code == 0, ended
        return ended

    @contextmanager
    def begun(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on by itself."""
        with subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


class Terminal:
    """The other end of the terminal that a command runs at."""

    def __init__(self, commands: Commands, *arguments: object) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=commands.environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._unread = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def until(self, wanted: str, seconds: float = 120) -> str:
        """What is shown from where this was called last, up to a text."""
        assert self._shows(wanted, seconds), f"{wanted!r} is not in {self._unread!r}"
        before, _, self._unread = self._unread.partition(wanted)
        return before

    def interrupt_until(self, wanted: str) -> str:
        """Ctrl-C until a text is shown: Python's readline misses one that comes while it takes a key."""
        for _ in range(10):
            self.ctrl_c()
            if self._shows(wanted, 2):
                break
        return self.until(wanted)

    def _shows(self, wanted: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while wanted not in self._unread:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            self._unread += os.read(self._ours, 65536).decode(errors="replace")
        return True
