"""`file_output`: the changes of a view as CSV or JSON lines, each with its transaction.

A row carries `_change_type` ('insert' or 'delete'), `_weight` (how many times) and `_transaction`. The
file is written anew by each run, and holds whole transactions: it is flushed after each one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.interface import Output
from penstock.connectors.output.encode import to_cell, to_json
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, View

TRANSACTION_COLUMN = "_transaction"

_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


class FileOutput(Output):
    """Writes one file."""

    def __init__(self, name: str, path: str, form: str, *, delimiter: str = ",") -> None:
        self.name = name
        self._path = path
        self._form = form
        self._delimiter = delimiter
        self._headed = False
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise ConnectorError(f"connector {name}: cannot write {path}: {error.strerror}") from error

    @classmethod
    def from_config(cls, connector: Connector, view: View) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(["path"])
        path = os.path.abspath(config.required("path", str).removeprefix("file://"))
        form = Section.of(f"{where}: format", connector.config.get("format") or {})
        name = form.choice("name", ["csv", "json"], _SUFFIXES.get(Path(path).suffix.lower(), "json"))
        settings = form.section("config")
        settings.only(["delimiter"] if name == "csv" else [])
        delimiter = settings.get("delimiter", str, ",")
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise ConnectorError(f"{settings.path}.delimiter: expected one character, found {delimiter!r}")
        return cls(connector.name, path, name, delimiter=delimiter)

    def write(self, transaction: int, changes: pa.Table) -> None:
        lines = self._csv(transaction, changes) if self._form == "csv" else self._json(transaction, changes)
        try:
            self._file.write("".join(line + "\n" for line in lines))
            self._file.flush()
        except OSError as error:
            raise ConnectorError(
                f"connector {self.name}: cannot write {self._path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        self._file.close()

    def _json(self, transaction: int, changes: pa.Table) -> list[str]:
        return [
            json.dumps(to_json(row) | {TRANSACTION_COLUMN: transaction}, ensure_ascii=False)
            for row in changes.to_pylist()
        ]

    def _csv(self, transaction: int, changes: pa.Table) -> list[str]:
        lines = []
        if not self._headed:
            lines.append(self._row([*changes.column_names, TRANSACTION_COLUMN]))
            self._headed = True
        columns = [column.to_pylist() for column in changes.columns]
        lines.extend(self._row([*values, transaction]) for values in zip(*columns, strict=True))
        return lines

    def _row(self, values: list[object]) -> str:
        return self._delimiter.join(to_cell(value, self._delimiter) for value in values)
