"""`penstock query`: ask a running pipeline with SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.files import write_stream, write_to_stdout
from penstock.cli.service.output import draw
from penstock.cli.service.refusals import CommandError
from penstock.cli.service.results import drawn_result
from penstock.cli.service.session import Name, Session, service_command
from penstock.cli.units import size

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 1_000


class ResultForm(StrEnum):
    """How the rows of an answer are written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"
    HASH = "hash"


_SERVED = {
    ResultForm.TEXT: "arrow_ipc",
    ResultForm.JSON: "json",
    ResultForm.CSV: "arrow_ipc",
    ResultForm.ARROW: "arrow_ipc",
    ResultForm.PARQUET: "parquet",
    ResultForm.HASH: "hash",
}
_BINARY = (ResultForm.ARROW, ResultForm.PARQUET)


def add_commands(app: typer.Typer) -> None:
    service_command(app, "query", 'penstock query shop "SELECT * FROM by_region" --format csv')(query)


def query(
    session: Session,
    name: Name,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT, or INSERT INTO a table.")],
    form: Annotated[
        ResultForm, typer.Option("--format", help="text draws a table; json is a JSON object in each line.")
    ] = ResultForm.TEXT,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File for the answer.")
    ] = None,
    max_rows: Annotated[
        int, typer.Option(metavar="N", help="Draw no more rows than this; 0 draws all.", min=0)
    ] = MAX_ROWS,
) -> None:
    """Ask a running pipeline with SQL: tables, views, and whatever Spark can make of them."""
    if form == ResultForm.TEXT and output is not None:
        raise CommandError(ExitCode.USAGE, "A drawn table is not for a file: give --format too")
    answer(session, name, sql, form, output, max_rows)


def answer(
    session: Session,
    name: str,
    sql: str,
    form: ResultForm,
    output: Path | None = None,
    max_rows: int = MAX_ROWS,
) -> None:
    """Ask, and write what is answered."""
    asked = {"sql": sql.strip().rstrip(";"), "format": _SERVED[form]}
    with session.client.stream("GET", "pipelines", name, "query", query=asked) as found:
        if form == ResultForm.TEXT:
            _draw(session, _read(found.iter_bytes()), max_rows)
            return
        chunks = _chunks(found.iter_bytes(), form)
        if output is not None:
            written = write_stream(output, chunks)
            session.out.say(f"{output} has {size(written)}.")
        else:
            write_to_stdout(chunks, for_people=form not in _BINARY)


def _draw(session: Session, rows: pa.Table, max_rows: int) -> None:
    shown = rows.slice(0, max_rows) if max_rows else rows
    draw(drawn_result(shown))
    if shown.num_rows < rows.num_rows:
        session.out.say(f"{shown.num_rows:,} of {rows.num_rows:,} rows are shown; --max-rows 0 draws all.")
    else:
        session.out.say(f"{rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'}")


def _chunks(served: Iterator[bytes], form: ResultForm) -> Iterator[bytes]:
    if form == ResultForm.CSV:
        yield from _csv(_read(served))
    else:
        yield from served
        if form == ResultForm.HASH:
            yield b"\n"


def _read(chunks: Iterable[bytes]) -> pa.Table:
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(b"".join(chunks)) as reader:
            return reader.read_all()
    except pa.ArrowException as error:
        raise CommandError(ExitCode.FAILED, f"The answer is not whole: {error}") from error


def _csv(rows: pa.Table) -> Iterator[bytes]:
    """As a table of Penstock would read it back: a header, an empty cell for NULL."""
    from penstock.connectors.output.encode import to_cell

    yield (",".join(to_cell(name, ",") for name in rows.column_names) + "\n").encode()
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            yield (",".join(to_cell(value, ",") for value in row.values()) + "\n").encode()
