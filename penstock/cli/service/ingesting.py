"""`penstock ingest`: push a file into a table, piece by piece."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.documents import STDIN
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.session import Name, Session, Timeout, service_command
from penstock.cli.service.waiting import Say, poll
from penstock.cli.units import size

_CHUNK_BYTES = 256 * 1024


class DataFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    AVRO = "avro"


class UpdateFormat(StrEnum):
    RAW = "raw"
    INSERT_DELETE = "insert_delete"
    WEIGHTED = "weighted"


_ENDINGS = {
    ".json": DataFormat.JSON,
    ".jsonl": DataFormat.JSON,
    ".ndjson": DataFormat.JSON,
    ".csv": DataFormat.CSV,
    ".parquet": DataFormat.PARQUET,
    ".avro": DataFormat.AVRO,
}


def add_commands(app: typer.Typer) -> None:
    example = "penstock ingest shop orders orders.jsonl --update-format raw --wait"
    service_command(app, "ingest", example)(ingest)


def ingest(
    session: Session,
    name: Name,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Table that the rows are for.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File with rows; - for what is piped in.")],
    data_format: Annotated[
        DataFormat | None, typer.Option(help="Format of the rows; by the ending of FILE if not given.")
    ] = None,
    update_format: Annotated[
        UpdateFormat | None,
        typer.Option(help="What each JSON value is: a row (raw), or one wrapped in what to do with it."),
    ] = None,
    array: Annotated[bool, typer.Option("--array", help="The JSON values are lists of rows.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while the pipeline is paused.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the views and all outputs have the rows.")
    ] = False,
    timeout: Timeout = None,
) -> None:
    """Push rows into a table. If one of them is wrong none is taken in, and the command says which."""
    chosen = data_format or _by_ending(file)
    query = {
        "format": chosen.value,
        "update_format": update_format.value if update_format else None,
        "array": True if array else None,
        "force": True if force else None,
    }
    token, sent = _send(session, (name, table), file, query)
    answer: dict[str, Any] = {"table": table, "bytes": sent, "token": token}
    text = f"Table {table} has got {size(sent)}."
    if wait:
        step = _wait(session, name, token, timeout)
        answer |= {"status": "complete", "step": step}
        text = f"Table {table} has got {size(sent)}, and all of it is processed."
    session.out.answer(answer, text)


def _by_ending(file: Path) -> DataFormat:
    if file == STDIN:
        return DataFormat.JSON
    found = _ENDINGS.get(file.suffix.lower())
    if found is None:
        known = ", ".join(_ENDINGS)
        raise CommandError(
            ExitCode.USAGE, f"{file} ends with none of {known}: say with --data-format what it is"
        )
    return found


def _send(
    session: Session, place: tuple[str, str], file: Path, query: dict[str, str | bool | None]
) -> tuple[str, int]:
    """Send a file; what the service gives for it, and how many bytes it had."""
    name, table = place
    with _opened(file) as (content, length):
        body = _Body(content, length, Progress(*_COLUMNS, console=session.out.terminal, transient=True))
        with (
            body,
            session.client.stream(
                "POST", "pipelines", name, "ingress", table, query=query, content=body.chunks(), length=length
            ) as answer,
        ):
            answer.read()
            return str(answer.json()["token"]), body.sent


_COLUMNS = (TextColumn("sending"), BarColumn(), DownloadColumn(), TransferSpeedColumn())


class _Body:
    """The bytes of a request, as they are read; a bar shows how many, where somebody sees it."""

    def __init__(self, content: IO[bytes], length: int | None, progress: Progress) -> None:
        self._content = content
        self._length = length
        self._progress = progress
        self._progress.disable = not progress.console.is_terminal
        self._task = progress.add_task("", total=length)
        self.sent = 0

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def chunks(self) -> Iterator[bytes]:
        """No more than was announced, also if the file grows meanwhile."""
        while self._length is None or self.sent < self._length:
            most = _CHUNK_BYTES if self._length is None else min(_CHUNK_BYTES, self._length - self.sent)
            chunk = self._content.read(most)
            if not chunk:
                return
            self.sent += len(chunk)
            self._progress.advance(self._task, len(chunk))
            yield chunk


@contextmanager
def _opened(file: Path) -> Iterator[tuple[IO[bytes], int | None]]:
    """The bytes of a file, and how many they are if that is known."""
    if file == STDIN:
        yield sys.stdin.buffer, None
        return
    try:
        content = file.open("rb")
    except OSError as error:
        raise CommandError(ExitCode.USAGE, f"{file} cannot be read: {error}") from error
    with content:
        status = file.stat()
        yield content, status.st_size if stat.S_ISREG(status.st_mode) else None


def _wait(session: Session, name: str, token: str, timeout: float | None) -> int | None:
    def look(_say: Say) -> dict[str, Any] | None:
        found: dict[str, Any] = session.client.get("pipelines", name, "completion_status", token=token)
        return found if found["status"] == "complete" else None

    step: int | None = poll(session, look, "the rows are processed", timeout).get("step")
    return step
