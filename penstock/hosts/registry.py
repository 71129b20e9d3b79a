"""Which hosts are in, since when, and when each last gave a sign of life. Whoever does not fit is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock._version import __version__
from penstock.hosts.awake import AwakeClock
from penstock.hosts.messages import LOST_SECONDS, CheckIn
from penstock.hosts.refusals import RefusalError


@dataclass
class Known:
    """A host that checked in."""

    said: CheckIn
    seen: float
    at: datetime
    """Of its last sign of life."""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))


class Registry:
    """The hosts of one incarnation."""

    def __init__(
        self, pipeline: str, count: int, python: str, clock: Callable[[], float] | None = None
    ) -> None:
        self.pipeline = pipeline
        self.count = count
        self._python = python
        self._clock = clock or AwakeClock().now
        self._lock = threading.Lock()
        self._known: dict[int, Known] = {}
        self._replaced: set[str] = set()
        """Processes in whose place another one of the same storage came."""

    def admit(self, said: CheckIn) -> None:
        """A host checks in, or gives a sign of life; `RefusalError` if it is not one of this pipeline's."""
        self._refuse_others(said)
        with self._lock:
            now = self._clock()
            self._refuse_taken(said, now)
            known = self._known.get(said.index)
            if known is not None and known.said.process == said.process:
                known.said, known.seen, known.at = said, now, datetime.now(UTC)
                return
            if known is not None:
                self._replaced.add(known.said.process)
            self._known[said.index] = Known(said, now, datetime.now(UTC))

    def _refuse_others(self, said: CheckIn) -> None:
        """What is wrong with a host by itself."""
        if not 0 <= said.index < self.count:
            raise RefusalError(
                400,
                "NoSuchHost",
                f"the host at {said.address} is started as host {said.index}, but this pipeline has"
                f" {self.count} hosts, from 0 to {self.count - 1}",
                host=said.index,
            )
        if said.count is not None and said.count != self.count:
            raise RefusalError(
                400,
                "OtherCount",
                f"host {said.index} at {said.address} is started as one of {said.count} hosts, but this"
                f" pipeline has {self.count}",
                host=said.index,
            )
        if said.pipeline is not None and said.pipeline != self.pipeline:
            raise RefusalError(
                409,
                "OtherPipeline",
                f"the storage of host {said.index} at {said.address} belongs to pipeline {said.pipeline}, but"
                f" this is pipeline {self.pipeline}. Give the host the storage of this pipeline, or a new"
                " directory.",
                host=said.index,
            )
        if minor(said.python) != minor(self._python):
            raise RefusalError(
                409,
                "OtherPython",
                f"host {said.index} at {said.address} runs Python {said.python}, the coordinator"
                f" {self._python}: both must have the same minor version",
                host=said.index,
            )

    def _refuse_taken(self, said: CheckIn, now: float) -> None:
        """What is wrong with a host beside those that are in."""
        for index, known in self._known.items():
            if known.said.storage == said.storage and index != said.index:
                raise RefusalError(
                    409,
                    "OtherIndex",
                    f"the storage of the host at {said.address} is that of host {index}; it is started as"
                    f" host {said.index}",
                    host=said.index,
                )
        if said.process in self._replaced:
            raise RefusalError(
                409,
                "Replaced",
                f"another process with the same storage is host {said.index} by now, at"
                f" {self._known[said.index].said.url}; this one was at {said.url}. A copy of a host's storage"
                " is no second host.",
                host=said.index,
            )
        other = self._known.get(said.index)
        if other is None or other.said.storage == said.storage:
            return
        raise RefusalError(
            409,
            "IndexTaken",
            f"host {said.index} is {other.said.address} already, with storage {other.said.storage} and a sign"
            f" of life {now - other.seen:.0f} s ago; the host at {said.address}, with storage"
            f" {said.storage}, cannot be it too: it has not the batches of that one. If those are lost, stop"
            " the pipeline and start it again: it fetches them from its object store, if it has one.",
            host=said.index,
        )

    def get(self, index: int) -> Known | None:
        """A host that checked in, lost or not."""
        with self._lock:
            return self._known.get(index)

    def lost(self) -> dict[int, str]:
        """The hosts that gave no sign of life for so long that they are lost, and since when."""
        with self._lock:
            now = self._clock()
            return {
                index: f"host {index} at {known.said.address} has given no sign of life since"
                f" {known.at:%Y-%m-%d %H:%M:%S} UTC, {now - known.seen:.0f} s ago"
                for index, known in sorted(self._known.items())
                if now - known.seen >= LOST_SECONDS
            }


def refuse_other_version(version: object, index: object) -> None:
    """What hosts say may change with the version, so this is looked at before anything else."""
    if version != __version__:
        raise RefusalError(
            409,
            "OtherVersion",
            f"host {index} runs Penstock {version}, the coordinator {__version__}: use the same version",
            host=index if isinstance(index, int) else None,
        )


def minor(version: str) -> str:
    """
    >>> minor("3.11.7")
    '3.11'
    """
    return ".".join(version.split(".")[:2])
