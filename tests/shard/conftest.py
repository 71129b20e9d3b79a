"""Places for shards, one of each kind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.shard.stores.place import Place, PlaceConfig
from tests.servers import BUCKET, KEY, SECRET

KINDS = ("directory", "sqlite", "postgres", "bucket")


@pytest.fixture(params=KINDS)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> PlaceConfig:
    """A place that nobody else uses."""
    if request.param == "bucket":
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        endpoint = request.getfixturevalue("s3")
        return PlaceConfig(url, endpoint=endpoint, access_key=KEY, secret_key=SECRET)
    directory = (tmp_path / "place").as_uri()
    if request.param == "sqlite":
        return PlaceConfig(directory, log_uri=f"sqlite:///{tmp_path}/log.db")
    if request.param == "postgres":
        return PlaceConfig(directory, log_uri=request.getfixturevalue("database"))
    return PlaceConfig(directory)


@pytest.fixture
def place(config: PlaceConfig) -> Iterator[Place]:
    found = config.opened()
    yield found
    found.close()
