"""Places in object stores, and storage directories that are copied there, without Spark."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.checkpoint.model import Entry
from penstock.checkpoint.store import CheckpointStore
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.follow import Following
from penstock.sync.ownership import Ownership
from penstock.sync.pull import Pull
from penstock.sync.push import Push
from penstock.sync.remote import find, remote_checkpoints
from tests.servers import BUCKET, KEY, SECRET
from tests.stores import made


def config_of(url: str, folder: str | None = None, **more: Any) -> SyncConfig:
    """Settings for a place that nobody else uses."""
    bucket = f"{BUCKET}/{folder or uuid.uuid4().hex}"
    keys = {"access_key": KEY, "secret_key": SECRET}
    return SyncConfig.of({"bucket": bucket, "endpoint": url, **keys, **more})


class Site:
    """A storage directory and its side of a place."""

    def __init__(self, root: Path, config: SyncConfig, pipeline: str = "p", owner: str = "owner") -> None:
        self.root = root
        self.config = config
        self.pipeline = pipeline
        self.owner = owner
        self.location = Location(config, config.bucket)

    @property
    def store(self) -> CheckpointStore:
        store = CheckpointStore(self.root)
        assert store.read() is not None
        return store

    @property
    def ownership(self) -> Ownership:
        self.root.mkdir(exist_ok=True)
        return Ownership(self.location, self.root, self.pipeline, self.owner)

    @property
    def following(self) -> Following:
        self.root.mkdir(exist_ok=True)
        return Following(CheckpointStore(self.root), self.config, self.pipeline)

    def push(self, entry: Entry | None = None) -> Any:
        """As another process would: nothing is remembered of earlier pushes."""
        return Push(self.root, self.ownership, self.config).run(entry or self.store.newest)

    def pull(self, wanted: str = "latest") -> Any:
        found = find(self.location, wanted, self.config)
        assert found is not None
        self.root.mkdir(exist_ok=True)
        return Pull(CheckpointStore(self.root), self.config).run(found, self.pipeline, found.catalog.id)

    def transactions(self) -> list[int]:
        """Of the checkpoints that the place lists."""
        return [entry.transaction for entry in remote_checkpoints(self.location)]

    def lose(self) -> None:
        shutil.rmtree(self.root)


def primary(root: Path, config: SyncConfig, **more: Any) -> Site:
    made(root)
    return Site(root, config, **more)


def overwrite(location: Location, key: str, data: bytes) -> None:
    """Put something else under a key."""
    location.delete([key])
    assert location.create(key, data)


@contextmanager
def instead(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Put a function in place of a method for a while; it is given the one that was there."""
    before = getattr(owner, name)
    setattr(owner, name, lambda *args, **more: function(before, *args, **more))
    try:
        yield
    finally:
        setattr(owner, name, before)
