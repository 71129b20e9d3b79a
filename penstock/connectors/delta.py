"""What the Delta connectors share: where a table is, how it is reached, and what its errors mean."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlparse

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from penstock.connectors.config import Section
from penstock.errors import ConnectorError, UnreachableError
from penstock.references import is_reference, resolved

_PREFIXES = {
    "s3": "aws_",
    "s3a": "aws_",
    "gs": "google_",
    "az": "azure_",
    "abfs": "azure_",
    "abfss": "azure_",
    "adl": "azure_",
}
_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "retry_timeout",
    "timeout",
    "user_agent",
)
_S3_OPTIONS = (
    "access_key_id",
    "allow_unsafe_rename",
    "bucket",
    "conditional_put",
    "copy_if_not_exists",
    "default_region",
    "endpoint",
    "endpoint_url",
    "imdsv1_fallback",
    "region",
    "secret_access_key",
    "session_token",
    "skip_signature",
    "token",
    "unsigned_payload",
    "virtual_hosted_style_request",
)
_SECRET = re.compile(
    r"secret|token|password|account_key|access_key$|sas_key|service_account_key", re.IGNORECASE
)

_REFUSED = re.compile(
    r"\b40[013]\b|Forbidden|AccessDenied|NoSuchBucket|InvalidAccessKeyId|SignatureDoesNotMatch"
)
"""What an object store says when trying again does not help."""

_NOISE = re.compile(r"\n\s*0: .*|\x1b\[\d*m", re.DOTALL)
"""A Rust backtrace, or colours."""


@dataclass(frozen=True)
class Location:
    """A table's place; `options` are those of its object store, with references to secrets unresolved."""

    uri: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, config: Section, fields: Sequence[str], *, literal_secrets: bool) -> Location:
        """The place that `config` names; every field that is not one of `fields` is a storage option."""
        uri = config.required("uri", str)
        options = {name: value for name, value in config.values.items() if name not in fields}
        scheme = urlparse(uri).scheme
        if scheme in ("", "file"):
            config.only(fields)
            return cls(os.path.abspath(unquote(urlparse(uri).path) if scheme else uri), {})
        if scheme not in _PREFIXES:
            raise ConnectorError(
                f"{config.path}.uri: expected a path or a URI that starts with file://,"
                f" {', '.join(f'{known}://' for known in _PREFIXES)}; found {uri!r}"
            )
        known = [*fields, *_CLIENT_OPTIONS, *(_S3_OPTIONS if _PREFIXES[scheme] == "aws_" else ())]
        prefixed = tuple(name for name in options if name.lower().startswith(_PREFIXES[scheme]))
        config.only([*known, *prefixed])
        for name in options:
            value = config.required(name, str)
            if not literal_secrets and _SECRET.search(name) and not is_reference(value):
                raise ConnectorError(
                    f"{config.path}.{name}: a secret must not be written out here, since what an input reads"
                    " is journaled; write '${env:NAME}' and set the environment variable NAME"
                )
        return cls(uri, options)

    @property
    def local(self) -> bool:
        return "://" not in self.uri

    def storage_options(self) -> dict[str, str]:
        return {name: resolved(value) for name, value in self.options.items()}

    def table(self, version: int | None = None) -> DeltaTable | None:
        """The table, None if there is none."""
        try:
            return DeltaTable(self.uri, version=version, storage_options=self.storage_options())
        except TableNotFoundError:
            return None

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn what deltalake raises into what it means for the pipeline."""
        try:
            yield
        except (DeltaError, OSError) as error:
            said = f"{doing} {self.uri}: {plain(error)}"
            again = isinstance(error, CommitFailedError) or "No space left" in said
            if not self.local and (isinstance(error, OSError) or "Generic" in said):
                again = again or not _REFUSED.search(said)
            raise (UnreachableError if again else ConnectorError)(said) from error


def plain(error: Any) -> str:
    """What an error of deltalake says, in one line."""
    return " ".join(_NOISE.sub("", str(error)).replace("↳", "").split())
