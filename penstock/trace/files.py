"""The files of batches: where they lie, and what is done with them beside being written by tasks.

This is the directory of a pipeline on one machine. A pipeline on several hosts has files on each of them
(`penstock/hosts/files.py`), and everything above asks here instead of the disk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import DamagedError
from penstock.storage.files import (
    Content,
    children,
    content_of,
    remove_garbage,
    remove_if_empty,
    sync_directory,
    sync_file,
    write_file,
)

BATCH_NAME = re.compile(r"(\d{12}-[0-9a-f]{8}-(\d{4,}|m)|m[0-9a-f]{16})\.arrow(\.\d+\.tmp|\.part)?")
"""The names that batches have, written or fetched, whole or half. A file of any other name is not ours
to delete."""


_COPY_NAME = re.compile(r"(\d{12}-[0-9a-f]{8}-(\d{4,}|m)|m[0-9a-f]{16})\.[0-9a-f]{32}\.arrow(\.\d+\.tmp)?")


def batch_name(transaction: int, run: str, part: str) -> str:
    """What a transaction calls a batch: the same name when a task is run again, and another one in another
    run of the pipeline, for a checkpoint may still have the batch of the run before."""
    return f"{transaction:012d}-{run}-{part}"


@dataclass(frozen=True)
class Size:
    """How much one batch holds, and the checksum of its bytes. On several hosts also whose task wrote it, and
    its first and its last key: who needs others does not fetch it."""

    rows: int
    bytes: int
    checksum: str
    host: int = 0
    first: int | None = None
    last: int | None = None

    @property
    def content(self) -> Content:
        """What its file must contain."""
        return Content(self.bytes, self.checksum)


Sizes = Mapping[str, Mapping[str, Size]]
"""Batches, by trace and name."""


class BatchFiles:
    """Those of one directory, on this machine."""

    hosts = 1
    """On how many machines they lie."""

    @property
    def addresses(self) -> list[str]:
        """Where these machines are, if there are several."""
        return []

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reads: Counter[tuple[int, str]] = Counter()
        """How often tasks on a host came to a batch in which way, where that may be another host's."""
        self._synced: set[tuple[str, str]] = set()
        self._doubtful: set[tuple[str, str]] = set()

    def path(self, trace: str, name: str) -> Path:
        """Where a batch lies that is on this machine."""
        return self.directory / trace / f"{name}.arrow"

    def at_hand(self, trace: str, name: str, size: Size) -> Path:
        """Where this process can read a batch."""
        return self.path(trace, name)

    def url_of(self, path: str) -> str | None:
        """Where tasks can ask for a file of the storage directory; None: they can read it."""
        return None

    def facts(self, traces: Sizes, run: str, program: str) -> Mapping[str, Any] | None:
        """What tasks of an engine must know beside the names of the batches that they read; `run` and
        `program` are marks of the engine and of what it computes. None: all is in one place."""
        return None

    def note(self, facts: Any, trace: str, name: str, size: Size) -> None:
        """Add a batch that was written just now to these facts."""

    def returned(self) -> Collection[int]:
        """The hosts that were started again since this was asked last. What is not synced there may be lost:
        the machine may have crashed."""
        return ()

    def returned_since(self, facts: Any) -> Collection[int]:
        """Those that were started again since these facts."""
        return ()

    def wait(self) -> None:
        """Wait until all of them can be reached again."""

    # -- being durable --------------------------------------------------------------------------

    def sync(self, traces: Sizes) -> None:
        """Make them durable. Batches never change, so each is synced once."""
        for trace, batches in traces.items():
            fresh = [name for name in batches if (trace, name) not in self._synced]
            for name in fresh:
                self._sync_one(trace, name, batches[name].content)
            if fresh:
                sync_directory(self.directory / trace)
        sync_directory(self.directory)
        self.are_synced(traces)

    def is_synced(self, trace: str, name: str) -> bool:
        """Whether a batch is durable for sure."""
        return (trace, name) in self._synced

    def are_synced(self, traces: Sizes) -> None:
        """These are durable, for a checkpoint has them; no others need be remembered."""
        self._synced = {(trace, name) for trace, batches in traces.items() for name in batches}

    def _sync_one(self, trace: str, name: str, expected: Content) -> None:
        """Once a sync failed, a second one may succeed without the bytes: then they are written again."""
        path = self.path(trace, name)
        if (trace, name) in self._doubtful:
            refuse_damaged(path, expected)
            write_file(path, lambda file: file.write(path.read_bytes()), durable=True)
            self._doubtful.discard((trace, name))
            return
        try:
            sync_file(path)
        except OSError:
            self._doubtful.add((trace, name))
            raise

    # -- being whole ----------------------------------------------------------------------------

    def faults(self, traces: Sizes, *, deep: bool) -> Iterator[tuple[str | None, int]]:
        """For each batch what is wrong with it, if anything is, and how many bytes it has."""
        for trace, batches in traces.items():
            for name, size in batches.items():
                yield different(self.path(trace, name), size.content, deep=deep), size.bytes

    def refuse_damaged(self, trace: str, name: str, size: Size) -> None:
        """`DamagedError` unless a batch contains what it must."""
        refuse_damaged(self.path(trace, name), size.content)

    # -- going ----------------------------------------------------------------------------------

    def remove(self, batches: Iterable[tuple[str, str]]) -> None:
        """Delete batches that nobody needs."""
        for trace, name in batches:
            remove_garbage(self.path(trace, name))

    def discard(self, transaction: int, run: str) -> None:
        """Delete what a transaction wrote that did not take effect."""
        for path in self.directory.glob(f"*/{batch_name(transaction, run, '*')}.arrow*"):
            remove_garbage(path)

    def sweep(self, needed: Collection[tuple[str, str]]) -> None:
        """Delete all batches but these, and what is half written."""
        for trace in children(self.directory):
            for path in children(trace):
                match = BATCH_NAME.fullmatch(path.name)
                if match and (match[3] or (trace.name, path.stem) not in needed):
                    remove_garbage(path)
            remove_if_empty(trace)

    def has(self, run: str) -> bool:
        """Whether a run of the pipeline has left batches."""
        return next(self.directory.glob(f"*/*-{run}-*"), None) is not None


class Copies:
    """Files of batches that were fetched from other hosts. The name of a batch is not unique over the
    attempts of its transaction, so that of its copy has its checksum too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, trace: str, name: str, checksum: str) -> Path:
        """Where the copy of a batch with these contents lies, if it is here."""
        return self.directory / trace / f"{name}.{checksum}.arrow"

    def remove(self, batches: Iterable[tuple[str, str]]) -> None:
        """Delete the copies of batches that nobody needs."""
        for trace, name in batches:
            self._remove(f"{trace}/{name}.*")

    def discard(self, transaction: int, run: str) -> None:
        """Delete those of what a transaction wrote that did not take effect."""
        self._remove(f"*/{batch_name(transaction, run, '*')}")

    def clear(self) -> None:
        """Delete all."""
        self._remove("*/*")

    def _remove(self, pattern: str) -> None:
        for path in self.directory.glob(pattern):
            if _COPY_NAME.fullmatch(path.name):
                remove_garbage(path)


class UnseenFiles(BatchFiles):
    """Those of hosts that are not asked: whether they are whole is seen when the pipeline starts on them."""

    def __init__(self, directory: Path, hosts: int) -> None:
        super().__init__(directory)
        self.hosts = hosts

    def faults(self, traces: Sizes, *, deep: bool) -> Iterator[tuple[str | None, int]]:
        return iter(())


def different(path: Path, expected: Content, *, deep: bool) -> str | None:
    """What is wrong with a file; `deep`: every byte of it is looked at."""
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            return f"{path} is damaged: expected {expected.bytes} bytes, found {size}"
        if deep and (found := content_of(path)) != expected:
            return f"{path} is damaged: expected {expected}, found {found.checksum}"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def refuse_damaged(path: Path, expected: Content) -> None:
    """`DamagedError` unless the file contains what it must."""
    try:
        found = content_of(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from error
    if found != expected:
        raise DamagedError(f"{path} is damaged: expected {expected}, found {found}")
