"""Checkpoints whose batches lie on several hosts, and their copies in an object store, without Spark.

As a program of its own it is a coordinator, or a host, that a test kills:
`python -m tests.hosts.parted push ROOT COUNT CONFIG`, `python -m tests.hosts.parted host ROOT INDEX`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.checkpoint.model import Entry, Pending
from penstock.checkpoint.store import CheckpointStore, Restored
from penstock.hosts.coordinator import Coordinator
from penstock.hosts.files import HostFiles
from penstock.hosts.parts import HostParts
from penstock.hosts.process import Host, Options
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Stop
from penstock.sync.filling import fill
from penstock.sync.follow import Following
from penstock.sync.ownership import Ownership
from penstock.sync.parts import Several
from penstock.sync.push import Push
from penstock.sync.remote import remote_checkpoints
from penstock.trace.files import Size
from tests.hosts.running import MASTER, Running, Sleeper, hosting, wait_until
from tests.stores import batch, begin_journal, saved

OWNER = "owner"


def disk(root: Path, index: int) -> Path:
    return root / f"host {index}"


def options(root: Path, index: int) -> Options:
    return Options(index, str(root / "shop"), disk(root, index))


class Parted:
    """The coordinator's side: one incarnation of it, whose hosts must be started beside it."""

    def __init__(self, root: Path, count: int, config: SyncConfig, hosts: Sequence[Running] = ()) -> None:
        self.root = root
        self.shop = root / "shop"
        self.shop.mkdir(exist_ok=True)
        self.config = config
        self.count = count
        self.coordinator = Coordinator(self.shop, OWNER, count, workers=1)
        self.coordinator.open(MASTER)
        self.coordinator.wait(lambda: any(host.error for host in hosts))
        assert not any(host.error for host in hosts), [host.said for host in hosts]
        self.store = CheckpointStore(self.shop)
        self.store.files = HostFiles(self.shop / "batches", self.coordinator, lambda: False)
        self.location = Location(config, config.bucket)
        self.parts = HostParts(self.coordinator, config, self.store.files.wait)

    def close(self) -> None:
        assert isinstance(self.store.files, HostFiles)
        self.store.files.close()
        self.coordinator.close()

    def begin(self) -> None:
        begin_journal(self.shop, 0)
        assert self.store.read() is None
        self.store.begin("p", OWNER, saved(0))

    def commit(self, number: int, *batches: int) -> Entry:
        """Take checkpoint `number`, of these batches; without any, of its own and of the one before."""
        traces: dict[str, dict[str, Size]] = {}
        for each in batches or (number - 1, number):
            host = each % self.count
            trace, name, size = batch(disk(self.root, host), each)
            traces.setdefault(trace, {})[name] = replace(size, host=host)
        waiting = [Pending("output", number, pa.table({"n": [number]}))]
        return self.store.commit(saved(number), traces, waiting)

    def push(self, entry: Entry | None = None) -> Any:
        assert self.store.read() is not None
        ownership = Ownership(self.location, self.shop, "p", OWNER)
        return Push(self.shop, ownership, self.config, parts=self.parts).run(entry or self.store.newest)

    @property
    def following(self) -> Following:
        config = self.config.model_copy(update={"start_from_checkpoint": "latest"})
        several = Several(self.count, lambda _: self.parts, lambda: OWNER)
        return Following(self.store, config, "p", several=several)

    def take_over(self) -> int:
        followed = self.following.take_over()
        assert followed is not None
        return followed.transaction

    def fill(self) -> None:
        assert self.store.read() is not None
        fill(self.store, self.config, self.parts, Stop())

    def restore(self) -> Restored:
        assert self.store.read() is not None
        return self.store.restore(deep=True)

    def transactions(self) -> list[int]:
        """Of the checkpoints that the place lists."""
        return [entry.transaction for entry in remote_checkpoints(self.location)]


@contextmanager
def parted(root: Path, count: int, config: SyncConfig, *, hosts: bool = True) -> Iterator[Parted]:
    """A coordinator, and its hosts in threads of this process."""
    root.mkdir(exist_ok=True)
    with _hosting(root, count if hosts else 0) as running:
        made = Parted(root, count, config, running)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def _hosting(root: Path, count: int) -> Iterator[list[Running]]:
    if count == 0:
        yield []
        return
    with hosting(options(root, count - 1)) as last:
        wait_until(lambda: last.said)  # applications cannot be made by several threads at once
        with _hosting(root, count - 1) as others:
            yield [*others, last]


def lose(root: Path, index: int) -> None:
    shutil.rmtree(disk(root, index))


def main(act: str, root: Path, number: int, config: str = "") -> None:
    if act == "host":
        Host(options(root, number), print, Sleeper).run()
        return
    with parted(root, number, SyncConfig.model_validate_json(config), hosts=False) as made:
        {"push": made.push, "take over": made.take_over}[act]()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
