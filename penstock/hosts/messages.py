"""What the coordinator and its hosts say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import HostError

LOST_SECONDS = 10.0
"""Who gives no sign of life for so long is lost, until it gives one again."""

SIGN_SECONDS = 1.0
"""A host gives a sign of life this often."""

COORDINATOR_FILE = "coordinator.json"
"""In the pipeline's storage: where its coordinator listens, as long as it runs."""

SECRET_FILE = "hosts.secret"
"""In the pipeline's storage: what a host must know to check in."""


ID_FILE = "hosts.id"
"""In the pipeline's storage: what its hosts know it by, before it has a catalog that says so."""


@dataclass(frozen=True)
class HostIndex:
    """Which host of how many. One that cannot be is not constructed."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise HostError(f"a pipeline has at least one host, not {self.count}")
        if not 0 <= self.index < self.count:
            raise HostError(
                f"there is no host {self.index} of {self.count}: the last one is host {self.count - 1}",
                host=self.index,
            )

    def __str__(self) -> str:
        return f"host {self.index} of {self.count}"


@dataclass(frozen=True)
class Membership:
    """To what a host belongs. Each request to it says so, and is refused if the host knows better."""

    pipeline: str
    """The id of the pipeline's storage."""
    incarnation: str
    """A random id of this run of the coordinator."""
    host: HostIndex

    def headers(self) -> Mapping[str, str]:
        """As headers of a request.

        >>> Membership("p", "i", HostIndex(0, 2)).headers()["Penstock-Hosts"]
        '2'
        """
        return {
            "Penstock-Pipeline": self.pipeline,
            "Penstock-Incarnation": self.incarnation,
            "Penstock-Host": str(self.host.index),
            "Penstock-Hosts": str(self.host.count),
        }


@dataclass(frozen=True)
class CheckIn:
    """What a host says to the coordinator, first of all and then as a sign of life."""

    version: str
    """Of Penstock."""
    python: str
    index: int
    address: str
    """The host's own, by which Spark knows it."""
    url: str
    """Of its agent."""
    storage: str
    """A random id of its storage directory."""
    process: str
    """A random id of the process: the same storage in a new one is a host that was started again."""
    count: int | None = None
    """Of how many it is, if it was told."""
    pipeline: str | None = None
    """To which its storage belongs, if to any."""
    incarnation: str | None = None
    """Of the coordinator that it knows, if any."""


@dataclass(frozen=True)
class Admission:
    """The coordinator's answer: what the host belongs to, and what it has to do."""

    pipeline: str
    incarnation: str
    count: int
    token: str = field(repr=False)
    """Whoever asks this host for something must know it."""
    workers: int
    """How many Spark tasks run on this host at once."""
    master: str
    """The URL of Spark's master."""
    spark_secret: str = field(repr=False)
    process: str = ""
    """Of the host, as it said."""

    def membership(self, index: int) -> Membership:
        """That of the host with this index."""
        return Membership(self.pipeline, self.incarnation, HostIndex(index, self.count))


@dataclass(frozen=True)
class Place:
    """What `coordinator.json` says."""

    url: str
    secret: str = field(repr=False)
    pipeline: str
    incarnation: str
    hosts: int
