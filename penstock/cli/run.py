"""`penstock run`: start a pipeline, show how it goes, and stop it in order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich import get_console
from rich.text import Text

import penstock
from penstock.cli.exit_codes import ExitCode
from penstock.cli.progress import Figures, display_for, summary
from penstock.errors import EvaluationError

REFRESH_SECONDS = 0.25
SAY_SECONDS = 5.0


def run_program(
    name: str,
    program: str,
    storage: Path | None,
    workers: int,
    group: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Any] | None = None,
) -> int:
    """Run until every input ended and all is processed or Ctrl-C; the exit code of the command."""
    config: dict[str, Any] = {"workers": workers, **(hosts or {})}
    if group is not None:
        config["group"] = dict(group)
    pipeline = penstock.Pipeline(
        name, program=program, storage=None if storage is None else str(storage), config=config
    )
    with _Interrupt.caught() as interrupt:
        try:
            with _starting(name) as say:
                _start(pipeline, say, interrupt)
                interrupt.listen()
                while not pipeline.recovered(REFRESH_SECONDS):
                    if interrupt.asked:
                        raise KeyboardInterrupt
                    if replay := pipeline.stats()["replay"]:
                        say(replay)
            if not any(table.connectors for table in pipeline.program.tables):
                _say("No table has a connector to read from, so there is nothing to run.")
            try:
                finished = _watch(pipeline, interrupt)
                figures = Figures(pipeline.stats())
            except EvaluationError:
                if storage is not None and (failed := pipeline.stats()["transaction"]) is not None:
                    where = "" if group is None else f" --group {group['uri']}"
                    _say(
                        "Run again to try again, or go on without that transaction:"
                        f" penstock resume {storage} --skip-transaction {failed['number']}{where}"
                    )
                raise
            finally:
                pipeline.stop()
        except KeyboardInterrupt:
            pipeline.kill()
            _say("Stopped at once; what was not finished is dropped.")
            return ExitCode.INTERRUPTED
    why = "Every input has ended" if finished else "Stopped by Ctrl-C"
    _say(f"{why}: {summary(figures)}")
    return ExitCode.DONE


def _start(pipeline: penstock.Pipeline, say: Callable[[str], None], interrupt: _Interrupt) -> None:
    """Start it in a thread of its own, and say how far the views of a changed program are filled."""
    failures: list[BaseException] = []

    def start() -> None:
        try:
            pipeline.start(wait=False)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=start, name="penstock start", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(REFRESH_SECONDS)
        if interrupt.asked:
            raise KeyboardInterrupt
        stats = pipeline.stats()
        if waits := (stats.get("hosts") or {}).get("waits_for"):
            say(waits)
        if (filling := stats.get("bootstrap")) is not None:
            done, tasks = filling["tasks_done"], filling["tasks"]
            say(f"Filling the views of the changed program: {done} of {tasks} tasks")
    if failures:
        raise failures[0]


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
def _starting(name: str) -> Iterator[Callable[[str], None]]:
    """Says that Spark starts, and lets the caller say how far the replay has come."""
    console = get_console()
    if console.is_terminal:
        with console.status(f"Starting Spark for pipeline {name} ...") as status:
            yield status.update
    else:
        _say(f"Starting Spark for pipeline {name} ...")
        yield _rarely(_say)


def _rarely(say: Callable[[str], None]) -> Callable[[str], None]:
    """The same, at most every few seconds."""
    last = time.monotonic()

    def say_rarely(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SAY_SECONDS:
            last = time.monotonic()
            say(text)

    return say_rarely


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
