"""A bucket, or a folder in one: objects that are there whole or not at all.

The store is S3 or speaks its protocol. What it refuses, and what does not answer after several attempts, is a
`SyncError` with bucket, key and HTTP status; only an object that is not there is no error.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
from obstore.store import S3Store

from penstock.errors import SyncError
from penstock.references import redacted, resolved

_TIMEOUT = timedelta(seconds=60)
_CONNECT_TIMEOUT = timedelta(seconds=10)
_RETRY_FOR = timedelta(seconds=20)
_RETRIES = 4
_PAUSES = (0.5, 2.0, 5.0)  # in seconds, each after the library gave up
_PART = 16 << 20
_METADATA_SERVICE = "169.254.169.254"
_NOT_HELD = (PreconditionError, AlreadyExistsError, NotModifiedError)
"""What a store answers to a write whose condition does not hold."""


T = TypeVar("T")


class NoRangesError(Exception):
    """The store does not answer a request for some bytes of an object as it should."""


class Access(Protocol):
    """How a store is reached: keys may be references to secrets."""

    @property
    def endpoint(self) -> str | None: ...
    @property
    def region(self) -> str | None: ...
    @property
    def access_key(self) -> str | None: ...
    @property
    def secret_key(self) -> str | None: ...
    @property
    def upload_parts(self) -> int:
        """How many parts of a large file are sent at once."""


@dataclass(frozen=True)
class Version:
    """An object as it was read; `tag` names this version of it."""

    data: bytes
    tag: str | None


class Location:
    """Objects by key, below the folder of a bucket."""

    def __init__(self, config: Access, bucket: str) -> None:
        self.place = bucket
        self.bucket, _, self.prefix = bucket.partition("/")
        place = "" if config.endpoint is None else f" at {config.endpoint}"
        self.label = f"s3://{bucket}{place}"
        self._config = config
        self._store = self._opened()

    def __str__(self) -> str:
        return self.label

    def _opened(self) -> S3Store:
        config = self._config
        given: dict[str, Any] = {"region": config.region or "us-east-1"}
        if config.endpoint is not None:
            given["endpoint"] = config.endpoint
        if config.access_key is not None and config.secret_key is not None:
            given["access_key_id"] = resolved(config.access_key)
            given["secret_access_key"] = resolved(config.secret_key)
        return S3Store(
            self.bucket,
            prefix=self.prefix or None,
            config={"checksum_algorithm": "SHA256"},
            client_options={
                "allow_http": (config.endpoint or "").startswith("http://"),
                "timeout": _TIMEOUT,
                "connect_timeout": _CONNECT_TIMEOUT,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR},
            **given,
        )

    # -- reading --------------------------------------------------------------------------------

    def read(self, key: str) -> Version | None:
        """An object; None if it is not there."""

        def act() -> Version:
            found = obstore.get(self._store, key)
            return Version(bytes(found.bytes()), found.meta["e_tag"])

        return self._if_there(key, act)

    def size(self, key: str) -> int | None:
        """How many bytes an object has; None if it is not there."""
        return self._if_there(key, lambda: int(obstore.head(self._store, key)["size"]))

    def part(self, key: str, start: int, end: int) -> bytes | None:
        """Some bytes of an object; None if it is not there. `NoRangesError` if only all of it can be had."""
        return self._if_there(key, lambda: bytes(obstore.get_range(self._store, key, start=start, end=end)))

    def whole(self, key: str, step: int) -> Iterator[bytes]:
        """All bytes of an object, so many at a time; nothing if it is not there."""
        found = self._if_there(key, lambda: obstore.get(self._store, key))
        if found is None:
            return
        try:
            for data in found.stream(min_chunk_size=step):
                yield bytes(data)
        except (BaseError, OSError) as error:
            raise self._translated("read", key, error) from error

    def _if_there(self, key: str, act: Callable[[], T]) -> T | None:
        try:
            return self._again("read", key, act)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):  # an object is also not there if its whole bucket is not
                raise self._translated("read", key, error) from error
            return None

    def keys(self, folder: str, after: str | None = None) -> list[str]:
        """The keys of all objects below a folder, or of those that come after a key."""
        parts = self._again(
            "list", folder, lambda: list(obstore.list(self._store, folder or None, offset=after))
        )
        return [one["path"] for some in parts for one in some]

    def folders(self) -> list[str]:
        """The names of the folders at the top."""
        found = self._again("list", "", lambda: obstore.list_with_delimiter(self._store))
        return [prefix.strip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def check(self) -> None:
        """Raise what is wrong with the bucket or the credentials, before anything is made of what it has."""
        self._again("list", "", lambda: next(iter(obstore.list(self._store, chunk_size=1)), None))

    # -- writing --------------------------------------------------------------------------------

    def upload(self, key: str, path: Path) -> None:
        """Put the bytes of a file there, in place of an object that may have the key."""
        large = path.stat().st_size > _PART
        parts = self._config.upload_parts

        def act() -> None:
            obstore.put(self._store, key, path, use_multipart=large, chunk_size=_PART, max_concurrency=parts)

        try:
            self._again("write", key, act)
        except FileNotFoundError as error:  # the whole bucket is not there
            raise self._translated("write", key, error) from error

    def put(self, key: str, data: bytes) -> None:
        """Put an object there, in place of one that may have the key."""
        self._again("write", key, lambda: obstore.put(self._store, key, data))

    def create(self, key: str, data: bytes) -> bool:
        """Put an object there if there is none; False if there is one."""
        return self._written(key, data, "create")

    def replace(self, key: str, data: bytes, before: Version) -> bool:
        """Put an object in place of a version of it; False if that is not the present version any more."""
        return self._written(key, data, {"e_tag": before.tag or ""})

    def _written(self, key: str, data: bytes, mode: Any) -> bool:
        try:
            self._again(
                "write", key, lambda: obstore.put(self._store, key, data, mode=mode, use_multipart=False)
            )
            return True
        except (*_NOT_HELD, FileNotFoundError):
            # An attempt whose answer was lost may have been the one that wrote it.
            found = self.read(key)
            return found is not None and found.data == data

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there do no harm."""
        for key in keys:
            try:
                self._again("delete", key, lambda key=key: obstore.delete(self._store, key))  # type: ignore[misc]
            except FileNotFoundError:
                pass

    # -- refusals -------------------------------------------------------------------------------

    def _again(self, doing: str, key: str, act: Callable[[], T]) -> T:
        """Do something until it is done, or refused, or time is over.

        The library tries again by itself, but not where it cannot know whether a write was done, nor when an
        answer ends in the middle. Here every write may be done twice.
        """
        pauses = [*_PAUSES]
        while True:
            try:
                return act()
            except (*_NOT_HELD, FileNotFoundError):
                raise
            except (BaseError, OSError, ValueError) as error:
                if "non-partial response" in str(error):
                    raise NoRangesError from error
                found = self._translated(doing, key, error)
                if not found.passing or not pauses:
                    raise found from error
            time.sleep(pauses.pop(0))

    def _translated(self, doing: str, key: str, error: Exception) -> SyncError:
        reason = redacted(str(error).partition("\n")[0])  # the rest is for the library's developers
        reason = re.sub(r" in [\d.]+[mµn]?s\b|, after \d+ retries[^-]*", "", reason)  # the same each time
        found = re.search(r"status(?: code)?:? (\d{3})", reason)
        status = int(found[1]) if found else (404 if isinstance(error, FileNotFoundError) else None)
        if _METADATA_SERVICE in reason:
            return self._error(
                doing,
                key,
                None,
                "there are no credentials",
                "Set access_key and secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        if status in (401, 403) or any(
            name in type(error).__name__ for name in ("Permission", "Unauthenticated")
        ):
            advice = "Check access_key and secret_key, and that they permit to list, get, put and delete."
            return self._error(doing, key, status or 403, "access denied", advice)
        if "NoSuchBucket" in str(error) or (status == 404 and not key):
            return self._error(doing, key, 404, "there is no such bucket", "Make it, or correct 'bucket'.")
        if status is None or status in (408, 429) or (status >= 500 and status != 501):
            return self._error(doing, key, status, reason, "Check endpoint and network.", passing=True)
        return self._error(doing, key, status, reason, "Check endpoint and region.")

    def _error(
        self, doing: str, key: str, status: int | None, reason: str, advice: str, *, passing: bool = False
    ) -> SyncError:
        code = "" if status is None else f" (HTTP {status})"
        return SyncError(
            f"{self.label}: {key or 'it'} cannot be {_DONE[doing]}: {reason}{code}. {advice}",
            bucket=self.bucket,
            key=key or None,
            status=status,
            passing=passing,
        )


_DONE = {"read": "read", "list": "listed", "write": "written", "delete": "deleted"}


def honours_conditions(location: Location) -> bool:
    """Whether a store heeds If-None-Match and If-Match: it is asked to do what it must not."""
    key = f"probe-{uuid.uuid4().hex}"
    try:
        if not location.create(key, b"first") or location.create(key, b"second"):
            return False
        first = location.read(key)
        if first is None or not location.replace(key, b"third", first):
            return False
        return not location.replace(key, b"fourth", first)
    except SyncError as error:
        if error.status == 501:  # it says so
            return False
        raise
    finally:
        location.delete([key])
