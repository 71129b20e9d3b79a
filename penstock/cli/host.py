"""`penstock host`: one host of a pipeline on several, until Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
from types import FrameType

from rich import get_console
from rich.text import Text

from penstock.cli.exit_codes import ExitCode
from penstock.hosts.process import Host, Options


def run_host(options: Options) -> int:
    """Run until Ctrl-C or SIGTERM; the exit code of the command. The second one ends it at once."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    host = Host(options, _say)
    asked = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        host.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        host.run()
    except KeyboardInterrupt:
        _say("Stopped at once.")
        get_console().file.flush()
        os._exit(ExitCode.INTERRUPTED)  # threads that copy something are not waited for
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _say("Stopped; the Spark worker is ended.")
    return ExitCode.DONE


def _say(text: str) -> None:
    get_console().print(Text(text), soft_wrap=True)
