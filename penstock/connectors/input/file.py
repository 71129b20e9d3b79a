"""`file_input`: local files.

`path` is a file, a directory or a glob (also as a `file://` URL). With `follow` the files are watched for
more bytes, and the directory or glob for new files; then the input never ends.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlparse

import pyarrow as pa

from penstock.connectors.blobs.interface import Blob
from penstock.connectors.blobs.local import LocalBlob
from penstock.connectors.config import Section
from penstock.connectors.formats.select import format_settings
from penstock.connectors.input.blobs import BlobInput, read_blob
from penstock.connectors.interface import Reject
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = LocalBlob.source

_LOOK_SECONDS = 0.5
"""How often a followed directory or glob is searched for new files."""


class FileInput(BlobInput):
    """Hands out ranges of the files in the order of their names."""

    def __init__(
        self, name: str, path: str, settings: Mapping[str, Any], *, key: Sequence[str], follow: bool
    ) -> None:
        super().__init__(name, settings, key=key, follow=follow)
        self._path = path
        self._looked: float | None = None
        if not self._look() and not follow:
            raise ConnectorError(
                f"connector {name}: no file matches {path!r}; correct the path, or put the file there"
            )

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(["path", "follow", "buffer_size_bytes"])
        config.count("buffer_size_bytes")  # a hint of the reference API; ranges are read as a whole here
        path = local_path(config.required("path", str), config.path)
        settings = format_settings(connector, path)
        follow = config.get("follow", bool, False)
        if follow and settings.get("lines", "single") != "single":
            raise ConnectorError(f"{where}: 'follow' needs one JSON value per line; set 'lines' to 'single'")
        return cls(connector.name, path, settings, key=table.primary_key, follow=follow)

    def _forget(self) -> None:
        super()._forget()
        self._looked = None

    def _find(self) -> list[Blob]:
        now = time.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return []
        self._looked = now
        return [LocalBlob(path) for path in _matching(self._path)]

    def _again(self, identity: Mapping[str, Any]) -> Blob:
        return LocalBlob(identity["path"])


def read_file(
    payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of one range of one file."""
    return read_blob(LocalBlob(payload["path"]), payload, schema, defaults, reject)


def local_path(path: str, where: str) -> str:
    """The path of a local file, which may be given as a URL."""
    if path.startswith("file://"):
        return unquote(urlparse(path).path)
    if "://" in path:
        raise ConnectorError(f"{where}.path: expected a local path or a file:// URL, found {path!r}")
    return os.path.abspath(path)


def _matching(path: str) -> list[str]:
    if os.path.isdir(path):
        entries = (os.path.join(path, name) for name in os.listdir(path) if not name.startswith((".", "_")))
        return sorted(entry for entry in entries if os.path.isfile(entry))
    if os.path.isfile(path):
        return [path]
    return sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
