"""`file_input`: local files, in ranges that several tasks read at once.

`path` is a file, a directory or a glob (also as a `file://` URL). Text is cut into byte ranges that end after
a record, Parquet into row groups. With `follow` the files are watched for more bytes, and the directory or
glob for new files; then the input never ends.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlparse

import pyarrow as pa

from penstock.connectors.config import Section
from penstock.connectors.formats import csv, json, parquet
from penstock.connectors.formats.record import BadRecordError, Target
from penstock.connectors.input.progress import File, ParquetFile, TextFile, WholeFile
from penstock.connectors.interface import Input, Split
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = "file"

_LOOK_SECONDS = 0.5
"""How often a followed directory or glob is searched for new files."""

_SETTINGS = {
    csv.NAME: csv.csv_settings,
    json.NAME: json.json_settings,
    parquet.NAME: parquet.parquet_settings,
}
_SUFFIXES = {
    ".csv": csv.NAME,
    ".json": json.NAME,
    ".jsonl": json.NAME,
    ".ndjson": json.NAME,
    ".parquet": parquet.NAME,
}


class FileInput(Input):
    """Hands out ranges of the files in the order of their names."""

    def __init__(
        self, name: str, path: str, settings: Mapping[str, Any], *, key: tuple[str, ...], follow: bool
    ) -> None:
        self.name = name
        self._path = path
        self._settings = settings
        self._key = list(key)
        self._follow = follow
        self._files: dict[str, File] = {}
        self._looked: float | None = None
        self._look()
        if not self._files and not follow:
            raise ConnectorError(f"connector {name}: no file matches {path!r}")

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(["path", "follow", "buffer_size_bytes"])
        config.count("buffer_size_bytes")  # a hint of the reference API; ranges are read as a whole here
        path = _local(config.required("path", str), config.path)
        settings = _settings(connector, path, where)
        follow = config.get("follow", bool, False)
        if follow and settings.get("lines") == "multiple":
            raise ConnectorError(f"{where}: 'follow' needs one JSON value per line; set 'lines' to 'single'")
        return cls(connector.name, path, settings, key=table.primary_key, follow=follow)

    def poll(self, max_rows: int) -> list[Split]:
        if self._follow:
            self._look()
        splits: list[Split] = []
        left = max_rows
        for file in self._files.values():
            while left > 0 and (found := self._next(file, left)) is not None:
                payload, rows = found
                splits.append(Split(SOURCE, {**payload, "path": file.path, "key": self._key}, rows))
                left -= rows
        return splits

    @property
    def ended(self) -> bool:
        return not self._follow and all(file.done for file in self._files.values())

    def _next(self, file: File, max_rows: int) -> tuple[dict[str, Any], int] | None:
        try:
            return file.next(max_rows)
        except OSError as error:
            raise ConnectorError(
                f"connector {self.name}: cannot read {file.path}: {error.strerror}"
            ) from error

    def _look(self) -> None:
        now = time.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for path in _matching(self._path):
            if path not in self._files:
                self._files[path] = self._open(path)

    def _open(self, path: str) -> File:
        if self._settings["name"] == parquet.NAME:
            return ParquetFile(path, self._settings, follow=self._follow)
        if self._settings.get("lines") == "multiple":
            return WholeFile(path, self._settings, follow=self._follow)
        return TextFile(path, self._settings, follow=self._follow)


def read_file(
    payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of one range of one file."""
    path, settings = payload["path"], payload["format"]
    target = Target(schema, payload["key"], defaults)
    try:
        if settings["name"] == parquet.NAME:
            yield from parquet.read_parquet(path, payload["row_groups"], target)
        else:
            yield from _read_text(path, payload["start"], payload["end"], settings, target)
    except (OSError, pa.ArrowException) as error:
        raise ConnectorError(f"cannot read {path}: {error}") from error


def _read_text(
    path: str, start: int, end: int, settings: Mapping[str, Any], target: Target
) -> Iterator[pa.RecordBatch]:
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read(end - start)
    if len(data) != end - start:
        raise ConnectorError(
            f"{path} ends at byte {start + len(data)}, and bytes {start} to {end} were expected"
        )
    parse = csv.parse_csv if settings["name"] == csv.NAME else json.parse_json
    try:
        yield from parse(data, settings, target)
    except BadRecordError as bad:
        line = _lines_before(path, start) + bad.line + 1
        raise ConnectorError(f"{path}, line {line}: {bad.reason}") from bad


def _lines_before(path: str, end: int) -> int:
    lines = 0
    with open(path, "rb") as file:
        while end > 0 and (data := file.read(min(end, 1 << 20))):
            lines += data.count(b"\n")
            end -= len(data)
    return lines


def _local(path: str, where: str) -> str:
    if path.startswith("file://"):
        return unquote(urlparse(path).path)
    if "://" in path:
        raise ConnectorError(f"{where}.path: expected a local path or a file:// URL, found {path!r}")
    return os.path.abspath(path)


def _settings(connector: Connector, path: str, where: str) -> dict[str, Any]:
    formatted = connector.config.get("format")
    if formatted is None:
        name = _SUFFIXES.get(Path(path).suffix.lower())
        if name is None:
            raise ConnectorError(
                f"{where}: the field 'format' is missing, and {path!r} does not end in a known format"
            )
        return _SETTINGS[name](Section(f"{where}: format.config", {}))
    section = Section.of(f"{where}: format", formatted)
    name = section.choice("name", list(_SETTINGS), "")
    return _SETTINGS[name](section.section("config"))


def _matching(path: str) -> list[str]:
    if os.path.isdir(path):
        entries = (os.path.join(path, name) for name in os.listdir(path) if not name.startswith((".", "_")))
        return sorted(entry for entry in entries if os.path.isfile(entry))
    if os.path.isfile(path):
        return [path]
    return sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
