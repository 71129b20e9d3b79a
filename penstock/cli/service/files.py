"""Answers that go into files: whole, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.refusals import CommandError


def write_stream(path: Path, chunks: Iterable[bytes]) -> int:
    """Write a file next to where it belongs, and put it there at the end; how many bytes it has."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            count = file.tell()
        unfinished.replace(path)
    except OSError as error:
        raise CommandError(ExitCode.FAILED, f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def write_to_stdout(chunks: Iterable[bytes], *, for_people: bool) -> None:
    """Bytes as they come; a terminal would only be confused by those that are not for people."""
    if not for_people and sys.stdout.isatty():
        raise CommandError(ExitCode.USAGE, "This is not for a terminal: give a file with -o")
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
