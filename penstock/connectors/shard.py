"""What the connectors of shards share: where a shard is, and what its errors mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.connectors.config import Section
from penstock.errors import (
    ConnectorError,
    DataExpiredError,
    DivergedError,
    LeaseExpiredError,
    ShardError,
    StorageError,
    TimeGoneError,
    UnreachableError,
)
from penstock.references import is_reference
from penstock.shard.stores.place import PlaceConfig

FIELDS = ("uri", "log_uri", "endpoint", "region", "access_key", "secret_key", "name")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def place_of(config: Section) -> PlaceConfig:
    """The place that a connector names; nothing is asked of it yet."""
    given = {name: config.optional(name, str) for name in FIELDS if name not in ("name", "uri")}
    uri = config.required("uri", str)
    if (given["access_key"] is None) != (given["secret_key"] is None):
        raise ConnectorError(f"{config.path}: 'access_key' and 'secret_key' go together")
    secret = given["secret_key"]
    if secret is not None and not is_reference(secret):
        raise ConnectorError(
            f"{config.path}.secret_key: a secret must not stand in a program; put it into an environment"
            " variable of the driver and the executors, and write ${env:NAME} with its name here"
        )
    place = PlaceConfig(uri, **given)
    try:
        place.opened().close()
    except ShardError as error:
        raise ConnectorError(f"{config.path}: {error}") from error
    return place


def name_of(config: Section, default: str) -> str:
    """The name of the shard in its place."""
    name = config.get("name", str, default)
    if not _NAME.fullmatch(name):
        raise ConnectorError(
            f"{config.path}.name: expected letters, digits, '_', '-' and '.', with no '.' or '-' at the"
            f" beginning, found {name!r}"
        )
    return name


@contextmanager
def told(connector: str) -> Iterator[None]:
    """Turn what a shard raises into what it means for the pipeline."""
    try:
        yield
    except ShardError as error:
        if isinstance(error, DivergedError):
            raise
        if error.passing:  # so is the lease of a writer, which begins again as another one
            raise UnreachableError(f"connector {connector}: {error}") from error
        if isinstance(error, TimeGoneError | LeaseExpiredError):
            raise DataExpiredError(
                f"connector {connector}: {error} This pipeline was away for longer than 'lease_seconds':"
                " start it anew, with an empty storage directory, to begin with the rows that there are now."
            ) from error
        raise ConnectorError(f"connector {connector}: {error}") from error
    except StorageError as error:
        raise ConnectorError(f"connector {connector}: {error}") from error
