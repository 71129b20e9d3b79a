"""Objects of S3, or of anything that speaks its protocol.

Credentials are never part of a split: it holds references to environment variables, or nothing, and then the
AWS_* variables or the role of the machine are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, BinaryIO, ClassVar, Self

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store

from penstock.connectors.blobs.interface import Blob, range_file
from penstock.errors import ConnectorError, UnreachableError
from penstock.references import resolved

_TIMEOUT = timedelta(minutes=5)
_CONNECT_TIMEOUT = timedelta(seconds=10)
_METADATA_SERVICE = "169.254.169.254"
_AGAIN_LATER = frozenset({408, 429})


@dataclass(frozen=True)
class Bucket:
    """Where a bucket is, and which variables hold the credentials for it."""

    bucket_name: str
    region: str
    endpoint_url: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None
    no_sign_request: bool
    max_retries: int

    @property
    def label(self) -> str:
        place = "" if self.endpoint_url is None else f" at {self.endpoint_url}"
        return f"s3://{self.bucket_name}{place}"

    @cached_property
    def store(self) -> S3Store:
        given: dict[str, Any] = {"region": self.region}
        if self.endpoint_url is not None:
            given["endpoint"] = self.endpoint_url
        if self.no_sign_request:
            given["skip_signature"] = True
        if self.aws_access_key_id is not None and self.aws_secret_access_key is not None:
            given["access_key_id"] = resolved(self.aws_access_key_id)
            given["secret_access_key"] = resolved(self.aws_secret_access_key)
        return S3Store(
            self.bucket_name,
            client_options={
                "allow_http": (self.endpoint_url or "").startswith("http://"),
                "timeout": _TIMEOUT,
                "connect_timeout": _CONNECT_TIMEOUT,
            },
            retry_config={"max_retries": self.max_retries},
            **given,
        )

    def object(self, key: str) -> S3Blob:
        """The present version of an object; asks the server."""
        with _explained(f"s3://{self.bucket_name}/{key}", self):
            found = obstore.head(self.store, key)
        return S3Blob(self, key, found["size"], found["e_tag"])

    def objects(self, prefix: str) -> list[S3Blob]:
        """The present versions of all objects whose keys start with `prefix`, in the order of their keys."""
        folder = prefix.rpartition("/")[0]  # the library lists folders, and a prefix may end within a name
        with _explained(self.label, self):
            found = [one for part in obstore.list(self.store, folder or None) for one in part]
        return [
            S3Blob(self, one["path"], one["size"], one["e_tag"])
            for one in sorted(found, key=lambda one: one["path"])
            if one["path"].startswith(prefix) and one["size"]
        ]


class S3Blob(Blob):
    """One version of an object."""

    source: ClassVar[str] = "s3"

    def __init__(self, bucket: Bucket, key: str, size: int, etag: str | None) -> None:
        self.label = f"s3://{bucket.bucket_name}/{key}"
        self._bucket = bucket
        self._key = key
        self._size = size
        self._etag = etag

    @classmethod
    def again(cls, identity: Mapping[str, Any]) -> Self:
        """The version of an identity, to be read once more."""
        return cls(Bucket(**identity["bucket"]), identity["object"], identity["size"], identity["etag"])

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"bucket": asdict(self._bucket), "object": self._key, "size": self._size, "etag": self._etag}

    def size(self) -> int:
        return self._size

    def open(self) -> BinaryIO:
        return range_file(self._size, self._range)

    def _range(self, start: int, end: int) -> bytes:
        options: obstore.GetOptions = {"range": (start, end)}
        if self._etag is not None:
            options["if_match"] = self._etag
        with _explained(self.label, self._bucket):
            try:
                found = obstore.get(self._bucket.store, self._key, options=options)
            except PreconditionError as error:
                raise self._changed() from error
            # Not every server knows conditions; then the answer tells.
            if found.meta["size"] != self._size or self._etag not in (None, found.meta["e_tag"]):
                raise self._changed()
            data = bytes(found.bytes())
        if len(data) != end - start:
            raise UnreachableError(f"{self.label}: {len(data)} of {end - start} bytes came")
        return data

    def _changed(self) -> ConnectorError:
        return ConnectorError(
            f"{self.label} changed after it was first read. Put the old content back, or give the new "
            "content a new key; to read everything anew, start with an empty storage directory"
        )


@contextmanager
def _explained(what: str, bucket: Bucket) -> Iterator[None]:
    """Errors of the library as those of Penstock, which tell trouble from refusal."""
    try:
        yield
    except FileNotFoundError as error:
        raise _missing(what, bucket) from error
    except ValueError as error:
        raise ConnectorError(f"{what} cannot be read: {error}") from error
    except BaseError as error:
        raise _translated(what, bucket, error) from error


def _missing(what: str, bucket: Bucket) -> ConnectorError:
    return ConnectorError(
        f"{what} is not there; correct bucket_name, key and endpoint_url, or put it into {bucket.label}"
    )


def _translated(what: str, bucket: Bucket, error: BaseError) -> ConnectorError:
    reason = str(error).partition("\n")[0]  # the rest is for the library's developers
    found = re.search(r"status code: (\d{3})", reason)
    status = int(found.group(1)) if found else None
    trouble = "HTTP error" in reason if status is None else status >= 500 or status in _AGAIN_LATER
    if _METADATA_SERVICE in reason:
        text = (
            f"{what}: no credentials were found, neither in the configuration nor in the environment nor as "
            "a role of this machine; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or 'no_sign_request'"
        )
        return UnreachableError(text) if trouble else ConnectorError(text)
    if trouble:
        return UnreachableError(f"{what} cannot be reached: {reason}")
    if status == 404:
        return _missing(what, bucket)
    if status in (401, 403) or isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return ConnectorError(
            f"{what} may not be read: {status} access denied; check the credentials, and that they permit to "
            "list the bucket and to get its objects"
        )
    return ConnectorError(f"{what} cannot be read: {reason}; check region and endpoint_url")
