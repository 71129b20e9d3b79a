"""What lies in an object store, and under which keys.

    owner.json                                   whose the place is; changed by compare-and-swap only
    catalog.json                                 its checkpoints, oldest first; likewise
    checkpoints/<id>/manifest.json, state.json, changes-<n>.arrow
    batches/<trace>/<name>-<checksum>.arrow

A checkpoint of a pipeline on several hosts has its parts in folders of theirs:

    coordinator/checkpoints/<id>/...
    host<i>/batches/<trace>/<name>-<checksum>.arrow

Everything but the first two never changes: what lies under a key is what the key says. So a push that was cut
off, or was made by somebody who has lost the place, harms nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from penstock.checkpoint.model import MANIFEST_FILE, Entry, Manifest, batch_path
from penstock.storage.document import Document
from penstock.storage.files import Content
from penstock.trace.files import Size

OWNER_KEY = "owner.json"
CATALOG_KEY = "catalog.json"
CLAIM_FILE = "sync.json"

PARTS = re.compile(r"checkpoints|batches|coordinator|host\d+")
"""The folders of a place that have files of checkpoints."""


@dataclass(frozen=True)
class Owner:
    """Whose the place is."""

    pipeline: str  # its name, for people
    id: str  # what it is known by, whatever its name
    holder: str  # the storage directory that may write
    epoch: int  # grows with every change of the holder
    at: datetime
    registered: str = ""  # what a service knows the pipeline by, whatever its name and its storage


@dataclass(frozen=True)
class RemoteCatalog:
    """The checkpoints of a place, oldest first, as the holder of this epoch left them."""

    pipeline: str
    id: str
    epoch: int
    checkpoints: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What a storage directory remembers of its place in an object store."""

    holder: str
    location: str = ""  # empty: it never wrote to one
    epoch: int = 0
    standby: bool = False
    """Whether it only follows: nothing may run in it before it is activated."""


OWNER = Document("owner", 1, Owner)
REMOTE_CATALOG = Document("remote catalog", 1, RemoteCatalog)
CLAIM = Document("claim", 1, Claim)


@dataclass(frozen=True)
class Piece:
    """A file of a checkpoint: its key in the object store, its path in a storage directory, what it has."""

    key: str
    path: Path
    content: Content
    host: int = 0
    """Which host has it, if it is a batch and there are several."""


def folder(checkpoint: str, hosts: int = 1) -> str:
    """Where the state files of a checkpoint lie."""
    return f"{'coordinator/' if hosts > 1 else ''}checkpoints/{checkpoint}"


def manifest_key(checkpoint: str, hosts: int = 1) -> str:
    return f"{folder(checkpoint, hosts)}/{MANIFEST_FILE}"


def manifest_path(root: Path, checkpoint: str) -> Path:
    return root / "checkpoints" / checkpoint / MANIFEST_FILE


def batches_of(manifest: Manifest, root: Path) -> Iterator[Piece]:
    """The batches that a checkpoint lists."""
    for trace, batches in manifest.traces.items():
        for name, size in batches.items():
            part = f"host{size.host}/" if manifest.hosts > 1 else ""
            key = f"{part}batches/{trace}/{name}-{size.content.checksum}.arrow"
            yield Piece(key, batch_path(root, trace, name), size.content, size.host)


def files_of(manifest: Manifest, root: Path) -> Iterator[Piece]:
    """Its other files, but for the manifest itself."""
    for name, content in manifest.files.items():
        key = f"{folder(manifest.checkpoint, manifest.hosts)}/{name}"
        yield Piece(key, root / "checkpoints" / manifest.checkpoint / name, content)


def keys_of(manifest: Manifest) -> set[str]:
    """The keys of all that it lists."""
    nowhere = Path(PurePosixPath("."))
    return {piece.key for piece in (*batches_of(manifest, nowhere), *files_of(manifest, nowhere))}


def dealt(manifest: Manifest, hosts: int) -> Manifest:
    """The checkpoint on another number of hosts. A batch goes where its keys belong; if one machine wrote it,
    nobody knows them, and it goes to the host that has least.

    Which host has a batch matters to nobody but those who look for it: each finds its keys in any batch.
    """
    if manifest.hosts == hosts:
        return manifest
    traces: dict[str, dict[str, Size]] = {trace: {} for trace in manifest.traces}
    load = [0] * hosts
    sizes = [(s.bytes, t, name) for t, batches in manifest.traces.items() for name, s in batches.items()]
    for bytes_, trace, name in sorted(sizes, reverse=True):
        size = manifest.traces[trace][name]
        host = load.index(min(load)) if (at := _middle(size)) is None else (at * hosts) >> 64
        load[host] += bytes_
        traces[trace][name] = replace(size, host=host)
    return replace(manifest, hosts=hosts, traces=traces)


def _middle(size: Size) -> int | None:
    """Of the keys of a batch, counted from the least key that there can be."""
    if size.first is None or size.last is None:
        return None
    return (size.first + size.last) // 2 + (1 << 63)
