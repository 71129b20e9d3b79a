"""`url_input`: what an HTTP or HTTPS URL gives, or a local file by its `file://` URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.connectors.blobs.http import HttpBlob
from penstock.connectors.blobs.interface import Blob
from penstock.connectors.blobs.local import LocalBlob
from penstock.connectors.config import Section
from penstock.connectors.formats.select import format_settings
from penstock.connectors.input.blobs import BlobInput, read_blob
from penstock.connectors.input.file import local_path
from penstock.connectors.interface import Reject
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = HttpBlob.source


class UrlInput(BlobInput):
    """Hands out ranges of what the URL gives when it is first asked."""

    def __init__(self, name: str, url: str, settings: Mapping[str, Any], *, key: Sequence[str]) -> None:
        super().__init__(name, settings, key=key)
        self._url = url

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        section = Section.of(f"connector {connector.name}: transport", connector.config["transport"])
        config = section.section("config")
        config.only(["path", "pause_timeout"])
        config.count("pause_timeout")  # no connection stays open between two ranges
        url = config.required("path", str)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "file"):
            raise ConnectorError(
                f"{config.path}.path: expected a URL with http, https or file, found {url!r}"
            )
        if "@" in parts.netloc:
            raise ConnectorError(
                f"{config.path}.path: a user in a URL is not supported, and its password would be written to "
                "the journal; use a URL with a token as ${env:NAME}"
            )
        return cls(connector.name, url, format_settings(connector, parts.path), key=table.primary_key)

    def _find(self) -> list[Blob]:
        if self._url.startswith("file:"):
            return [LocalBlob(local_path(self._url, "url_input"))]
        return [HttpBlob.find(self._url)]

    def _again(self, identity: Mapping[str, Any]) -> Blob:
        return LocalBlob(identity["path"]) if "path" in identity else HttpBlob.again(identity)


def read_url(
    payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of one range of what a URL gives."""
    return read_blob(HttpBlob.again(payload), payload, schema, defaults, reject)
