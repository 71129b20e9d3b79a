"""Storage directories with checkpoints, made without Spark: what is in a batch does not matter to them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

from penstock.checkpoint.check import check, read_manifest
from penstock.checkpoint.model import CATALOG_FILE, MANIFEST_FILE, Catalog, Entry, Pending, Saved, batch_path
from penstock.checkpoint.store import CheckpointStore
from penstock.journal.journal import Journal
from penstock.storage.files import content_of
from penstock.trace.files import Size


def batch(root: Path, number: int) -> tuple[str, str, Size]:
    """Write a batch as a task does: nothing is synced."""
    trace, name = f"trace-{number % 2}", f"{number:012d}-00000000-0000"
    path = batch_path(root, trace, name)
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(f"the rows of batch {number}".encode() * (number + 1))
    content = content_of(path)
    return trace, name, Size(number, content.bytes, content.checksum)


def saved(number: int) -> Saved:
    return Saved("the program", transaction=number, record=10 * number, rows={"t": number})


def commit(store: CheckpointStore, number: int, *batches: int, name: str | None = None) -> Entry:
    """Take checkpoint `number`, of these batches; without any, of its own and of the one before."""
    traces: dict[str, dict[str, Size]] = {}
    for each in batches or (number - 1, number):
        trace, called, size = batch(store.root, each)
        traces.setdefault(trace, {})[called] = size
    waiting = [Pending("output", number, pa.table({"n": [number]}))]
    return store.commit(saved(number), traces, waiting, name)


def opened(root: Path) -> CheckpointStore:
    """The store as another process would find it."""
    store = CheckpointStore(root)
    assert store.read() is not None
    return store


def all_whole(root: Path) -> Catalog:
    """Every listed checkpoint is, to the last byte; returns the catalog."""
    store = opened(root)
    for entry in store.catalog.checkpoints:
        checked = check(root, entry, deep=True)
        assert (checked.saved.transaction, checked.saved.record) == (entry.transaction, entry.record)
        assert [p.transaction for p in checked.changes if isinstance(p, Pending)] == [entry.transaction] * (
            entry.transaction > 0
        )
    return store.catalog


def transactions(catalog: Catalog) -> list[int]:
    return [entry.transaction for entry in catalog.checkpoints]


def listed(root: Path) -> set[str]:
    """Every file that the catalog leads to, and the catalog."""
    found = {CATALOG_FILE}
    for entry in opened(root).catalog.checkpoints:
        manifest = read_manifest(root, entry)
        found |= {f"checkpoints/{entry.id}/{name}" for name in [MANIFEST_FILE, *manifest.files]}
        found |= {f"batches/{trace}/{name}.arrow" for trace, name in manifest.batches}
        found |= {str(path.relative_to(root)) for path in (root / manifest.journal).iterdir()}
    return found


def begin_journal(root: Path, record: int, name: str = "journal") -> None:
    """Make a journal one that begins with this record, and has none."""
    shutil.rmtree(root / name, ignore_errors=True)
    journal = Journal(root / name, durable=True)
    journal.create(record)
    journal.close()


def made(root: Path) -> CheckpointStore:
    """A new store, with the checkpoint that every store begins with."""
    (root / "batches").mkdir(parents=True)
    begin_journal(root, 0)
    store = CheckpointStore(root)
    assert store.read() is None
    store.begin("p", "owner", saved(0))
    return store
