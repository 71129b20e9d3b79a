"""A place for shards: where the objects lie, and where the log is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.errors import ShardError
from penstock.shard.stores.bucket import Bucket, Keys
from penstock.shard.stores.directory import Directory
from penstock.shard.stores.interface import Blobs, Log


@dataclass(frozen=True)
class Place:
    """Objects and a log; both may be in one store."""

    blobs: Blobs
    log: Log

    def __str__(self) -> str:
        return self.blobs.label

    def close(self) -> None:
        """Release connections; nothing is deleted."""
        self.log.close()


@dataclass(frozen=True)
class PlaceConfig:
    """A place as it is written down: plain JSON, with references to secrets unresolved."""

    uri: str
    """`s3://bucket/folder`, or a directory, as `file:///path` or as a path."""
    log_uri: str | None = None
    """`sqlite:///path` or `postgresql://...`, if the log is not in the same store."""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PlaceConfig:
        """From plain JSON, as `plain` gave it."""
        return cls(**given)

    @property
    def plain(self) -> dict[str, str]:
        """What is set, as plain JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def opened(self) -> Place:
        """The place; nothing is asked of it yet."""
        blobs = self._blobs()
        if self.log_uri is None:
            return Place(blobs, blobs)
        # It takes a good part of a start to import what speaks to databases, and few have their log in one.
        from penstock.shard.stores.database import Database

        return Place(blobs, Database(self.log_uri))

    def _blobs(self) -> Directory | Bucket:
        parts = urlsplit(self.uri)
        if parts.scheme == "s3":
            folder = f"{parts.netloc}{parts.path}".strip("/")
            if not parts.netloc:
                raise ShardError(f"{self.uri} names no bucket: expected s3://bucket or s3://bucket/folder")
            return Bucket(folder, Keys(self.endpoint, self.region, self.access_key, self.secret_key))
        if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
            raise ShardError(f"{self.uri} names a host: expected file:///path, with three slashes")
        if parts.scheme in ("", "file"):
            return Directory(Path(unquote(parts.path) if parts.scheme else self.uri))
        raise ShardError(f"{self.uri} is no place for shards: use a directory, file:///path or s3://bucket")
