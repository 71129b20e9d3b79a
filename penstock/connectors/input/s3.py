"""`s3_input`: an object of S3, or all objects whose keys start with a prefix.

The objects are those that are there at the first poll, in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.connectors.blobs.interface import Blob
from penstock.connectors.blobs.s3 import Bucket, S3Blob
from penstock.connectors.config import Section
from penstock.connectors.formats.select import format_settings
from penstock.connectors.input.blobs import BlobInput, read_blob
from penstock.connectors.interface import Reject
from penstock.errors import ConnectorError
from penstock.references import is_reference

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = S3Blob.source

_RETRIES = 5


class S3Input(BlobInput):
    """Hands out ranges of the objects."""

    def __init__(
        self,
        name: str,
        bucket: Bucket,
        settings: Mapping[str, Any],
        *,
        object_key: str | None,
        prefix: str,
        key: Sequence[str],
    ) -> None:
        super().__init__(name, settings, key=key)
        self._bucket = bucket
        self._object_key = object_key
        self._prefix = prefix

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        section = Section.of(f"connector {connector.name}: transport", connector.config["transport"])
        config = section.section("config")
        config.only(
            [
                "bucket_name",
                "region",
                "key",
                "prefix",
                "endpoint_url",
                "aws_access_key_id",
                "aws_secret_access_key",
                "no_sign_request",
                "max_retries",
                "max_concurrent_fetches",
            ]
        )
        config.count("max_concurrent_fetches")  # Spark decides how many tasks run at once
        object_key, prefix = config.optional("key", str), config.optional("prefix", str)
        if (object_key is None) == (prefix is None):
            raise ConnectorError(f"{config.path}: expected one of 'key' and 'prefix'")
        settings = format_settings(connector, object_key or prefix or "")
        return cls(
            connector.name,
            _bucket(config),
            settings,
            object_key=object_key,
            prefix=prefix or "",
            key=table.primary_key,
        )

    def _find(self) -> list[Blob]:
        if self._object_key is not None:
            return [self._bucket.object(self._object_key)]
        found = self._bucket.objects(self._prefix)
        if not found:
            raise ConnectorError(
                f"{self._bucket.label} has no object whose key starts with {self._prefix!r}; correct the "
                "prefix, or put the objects there and start again"
            )
        return list(found)

    def _again(self, identity: Mapping[str, Any]) -> Blob:
        return S3Blob.again(identity)


def _bucket(config: Section) -> Bucket:
    key_id, secret = config.optional("aws_access_key_id", str), config.optional("aws_secret_access_key", str)
    if (key_id is None) != (secret is None):
        raise ConnectorError(
            f"{config.path}: expected both 'aws_access_key_id' and 'aws_secret_access_key', or neither to "
            "use the AWS_* variables of the environment or the role of the machine"
        )
    if secret is not None and not is_reference(secret):
        # Splits are written to the journal: what they need to be read again must not be a secret.
        raise ConnectorError(
            f"{config.path}.aws_secret_access_key: a secret must not stand in a program; put it into an "
            "environment variable of the driver and the executors, and write ${env:NAME} with its name here"
        )
    retries = config.count("max_retries")
    return Bucket(
        bucket_name=config.required("bucket_name", str),
        region=config.required("region", str),
        endpoint_url=config.optional("endpoint_url", str),
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        no_sign_request=config.get("no_sign_request", bool, False),
        max_retries=_RETRIES if retries is None else retries,
    )


def read_s3(
    payload: Mapping[str, Any], schema: pa.Schema, defaults: Mapping[str, Any], reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of one range of one object."""
    return read_blob(S3Blob.again(payload), payload, schema, defaults, reject)
