"""The batches of checkpoints where they lie on several hosts: each host copies its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.storage.location import Location
from penstock.sync.copying import Copied, Stop
from penstock.sync.model import Piece


class Parts(Protocol):
    """All hosts together, seen from the coordinator."""

    def push(self, checkpoint: str, pieces: Sequence[Piece], copied: Copied, stop: Stop) -> None:
        """Have each host put its batches into the bucket, those that are not there."""

    def pull(
        self, checkpoint: str, location: Location, pieces: Sequence[Piece], copied: Copied, stop: Stop
    ) -> None:
        """Have each host fetch its batches, those that it does not have, and make them durable."""

    def lacking(self, pieces: Sequence[Piece], *, deep: bool) -> list[Piece]:
        """Those that their hosts do not have; `deep`: or not as they must be."""


@dataclass(frozen=True)
class Several:
    """A pipeline on several hosts, which may not be there yet."""

    hosts: int
    join: Callable[[str], Parts]
    """Wait for them; they know the pipeline by the id of its storage."""
    id: Callable[[], str]
    """That of a storage directory that has no state yet: always the same."""
