"""What a checkpoint consists of, as the documents that describe it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.engine.fingerprints import Identity
from penstock.storage.document import Document
from penstock.storage.files import Content
from penstock.storage.table import TableFile
from penstock.trace.files import Size

Traces = Mapping[str, Mapping[str, Size]]
"""The batches of every trace."""

Batches = set[tuple[str, str]]
"""The traces and names of batches."""


@dataclass(frozen=True)
class Saved:
    """The state after a transaction, but for its batches; before `first`: not even that one has been run."""

    program: str
    transaction: int = -1
    first: int = 0  # the transaction that computes the views from nothing; of a replica it may be a later one
    record: int = 0  # the first record of the journal that came after it
    rows: dict[str, int] = field(default_factory=dict)
    circuit: list[str] = field(default_factory=list)  # every trace of the circuit, with or without batches
    relations: dict[str, Identity] = field(default_factory=dict)  # what every table and view is
    connectors: dict[str, Any] = field(default_factory=dict)  # what each is, also of those that were left out
    positions: dict[str, Any] = field(default_factory=dict)  # of input connectors
    paused: dict[str, bool] = field(default_factory=dict)  # input connectors that somebody paused or resumed
    delivered: dict[str, int] = field(default_factory=dict)  # to output connectors
    statistics: dict[str, dict[str, int]] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)  # by the file that has the changes
    carried: dict[str, str] = field(default_factory=dict)  # the same for a view, see Carried
    confirmed: int = -1  # of a replica: up to there it is known to have skipped what all others have

    @property
    def meaning(self) -> str:
        """A mark of what the program computes."""
        texts = sorted(f"{name} {identity.fingerprint}" for name, identity in self.relations.items())
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Waiting:
    """A transaction's changes that an output did not have yet."""

    output: str
    transaction: int


@dataclass(frozen=True)
class Pending:
    """The same, with the rows."""

    output: str
    transaction: int
    changes: pa.Table


@dataclass(frozen=True)
class Carried:
    """What a view's outputs are given with the next transaction, beside its change: the view was computed
    anew for another program, and these are the rows that came and went thereby, laid out as a batch."""

    view: str
    changes: pa.Table


@dataclass(frozen=True)
class Manifest:
    """Every file of a checkpoint. It is written last: a checkpoint without it is none."""

    checkpoint: str
    at: datetime
    pipeline: str
    owner: str
    journal: str
    transaction: int
    record: int
    rows: int
    name: str | None
    program: str  # what it computes, as a mark
    files: dict[str, Content]  # in the checkpoint's own directory
    traces: dict[str, dict[str, Size]]
    since: str = ""
    """The checkpoint with which its program began, and no other program came between."""
    hosts: int = 1
    """On how many machines its batches lie."""
    processed: dict[str, int] | None = None
    """Rows of all tables that each host has taken in so far, by its number."""

    @property
    def batches(self) -> Batches:
        return {(trace, name) for trace, batches in self.traces.items() for name in batches}

    @property
    def bytes(self) -> int:
        """The size of everything that it lists."""
        batches = sum(size.bytes for batches in self.traces.values() for size in batches.values())
        return batches + sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class Entry:
    """A checkpoint in the catalog."""

    id: str
    at: datetime
    transaction: int
    record: int
    rows: int  # of all tables and views
    bytes: int  # of all its files, also of those that it shares with others
    program: str  # what it computes, as a mark
    manifest: Content
    name: str | None = None
    aside: bool = False
    """Whether somebody went back to an earlier one: the pipeline's history no longer leads here."""
    suspect: bool = False
    """Whether a file of it was found to be damaged: all of it is checked before it is used again."""
    verified: datetime | None = None
    since: str = ""
    """As in the manifest."""
    hosts: int = 1
    """As in the manifest."""
    processed: dict[str, int] | None = None
    """As in the manifest."""

    @classmethod
    def of(cls, manifest: Manifest, content: Content) -> Entry:
        """How the catalog lists a checkpoint; `content` is that of the manifest's file."""
        return cls(
            manifest.checkpoint,
            manifest.at,
            manifest.transaction,
            manifest.record,
            manifest.rows,
            manifest.bytes + content.bytes,
            manifest.program,
            content,
            manifest.name,
            since=manifest.since,
            hosts=manifest.hosts,
            processed=manifest.processed,
        )

    @property
    def processed_records(self) -> int | None:
        """Rows that were taken in before it; None if it was written by a version that did not count them."""
        return None if self.processed is None else sum(self.processed.values())

    @property
    def origin(self) -> tuple[str, str]:
        """The same for checkpoints of one program that no other one came between."""
        return self.since, self.program

    def __str__(self) -> str:
        called = f"{self.name} ({self.id})" if self.name else self.id
        return f"{called}, transaction {self.transaction}"


@dataclass(frozen=True)
class Catalog:
    """The checkpoints of a pipeline, oldest first."""

    pipeline: str
    owner: str  # what outputs know this storage by
    journal: str = "journal"  # the directory of the journal that follows the newest checkpoint
    checkpoints: tuple[Entry, ...] = ()

    @property
    def line(self) -> tuple[Entry, ...]:
        """Those that the journal leads on from."""
        return tuple(entry for entry in self.checkpoints if not entry.aside)


STATE = Document("state", 1, Saved)
MANIFEST = Document("manifest", 1, Manifest)
CATALOG = Document("catalog", 1, Catalog)
CHANGES = TableFile("changes", 1)

STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
CATALOG_FILE = "catalog.json"
DAMAGED_SUFFIX = ".damaged"  # of the directory of a checkpoint that a repair did without


def batch_path(root: Path, trace: str, name: str) -> Path:
    """Where in a storage directory a batch lies."""
    return root / "batches" / trace / f"{name}.arrow"
