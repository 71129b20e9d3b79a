"""`penstock run`: start a pipeline, show how it goes, and stop it in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich import get_console
from rich.text import Text

import penstock
from penstock.cli.progress import Figures, display_for, summary

REFRESH_SECONDS = 0.25

DONE = 0
INTERRUPTED = 130


def run_program(name: str, program: str, storage: Path | None, workers: int) -> int:
    """Run until every input ended and all is processed or Ctrl-C; the exit code of the command."""
    pipeline = penstock.Pipeline(
        name, program=program, storage=None if storage is None else str(storage), config={"workers": workers}
    )
    with _Interrupt.caught() as interrupt:
        try:
            with _starting(name):
                pipeline.start()
            interrupt.listen()
            if not any(table.connectors for table in pipeline.program.tables):
                _say("No table has a connector to read from, so there is nothing to run.")
            try:
                finished = _watch(pipeline, interrupt)
                figures = Figures(pipeline.stats())
            finally:
                pipeline.stop()
        except KeyboardInterrupt:
            pipeline.kill()
            _say("Stopped at once; what was not finished is dropped.")
            return INTERRUPTED
    why = "Every input has ended" if finished else "Stopped by Ctrl-C"
    _say(f"{why}: {summary(figures)}")
    return DONE


def _watch(pipeline: penstock.Pipeline, interrupt: _Interrupt) -> bool:
    """Show the pipeline's figures until it is done (True) or interrupted (False)."""
    with display_for(get_console()) as display:
        while not interrupt.asked:
            if pipeline.wait(REFRESH_SECONDS):
                display.show(pipeline.stats())
                return True
            display.show(pipeline.stats())
    return False


@contextmanager
def _starting(name: str) -> Iterator[None]:
    console = get_console()
    if console.is_terminal:
        with console.status(f"Starting Spark for pipeline {name} ..."):
            yield
    else:
        _say(f"Starting Spark for pipeline {name} ...")
        yield


def _say(text: str) -> None:
    get_console().print(Text(text), soft_wrap=True)


class _Interrupt:
    """Ctrl-C and SIGTERM: the first asks to stop in order, the second raises KeyboardInterrupt.

    Spark installs a handler of its own that cancels all jobs, and so would fail the transaction that is
    running; `listen` puts ours back.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked.is_set():
            raise KeyboardInterrupt
        self._asked.set()

    @classmethod
    @contextmanager
    def caught(cls) -> Iterator[_Interrupt]:
        interrupt = cls()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        interrupt.listen()
        try:
            yield interrupt
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
