"""What the coordinator says to a host about its part of a checkpoint in an object store."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from penstock.hosts.messages import Membership
from penstock.storage.files import Content
from penstock.sync.config import SyncConfig

PUSH = "/coordination/checkpoint/push"
PULL = "/coordination/checkpoint/pull"
PULL_STATUS = "/coordination/checkpoint/pull_status"


@dataclass(frozen=True)
class Batch:
    """One that the host has, or is to have, and its key in the object store."""

    trace: str
    name: str
    key: str
    content: Content


@dataclass(frozen=True)
class PushPart:
    """Send these batches, where they are not there yet."""

    membership: Membership
    checkpoint: str
    bucket: str
    sync: SyncConfig = field(repr=False)
    batches: tuple[Batch, ...] = field(repr=False)


@dataclass(frozen=True)
class PullPart(PushPart):
    """Fetch these batches, where they are not here yet."""

    standby: bool
    """Whether it is for a pipeline that only follows as yet."""


@dataclass(frozen=True)
class Progress:
    """How far a push or a pull has come."""

    checkpoint: str
    files: int
    files_done: int
    bytes: int
    bytes_done: int
    done: bool


class PullState(StrEnum):
    """Of the last pull of a host's process."""

    NOT_STARTED = "not started"
    IN_PROGRESS = "in progress"
    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True)
class PullError:
    """What went wrong; `kind` is the code of the error."""

    kind: str
    message: str
    bucket: str | None = None
    key: str | None = None
    status: int | None = None


@dataclass(frozen=True)
class PullStatus:
    """Answer of `GET /coordination/checkpoint/pull_status`."""

    state: PullState
    standby: bool | None = None
    progress: Progress | None = None
    error: PullError | None = None


_PUSH_PART: TypeAdapter[PushPart] = TypeAdapter(PushPart)
_PULL_PART: TypeAdapter[PullPart] = TypeAdapter(PullPart)
PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)
STATUS: TypeAdapter[PullStatus] = TypeAdapter(PullStatus)


def body_of(part: PushPart) -> Any:
    """As JSON; it has the keys of the object store."""
    adapter: TypeAdapter[Any] = _PULL_PART if isinstance(part, PullPart) else _PUSH_PART
    return adapter.dump_python(part, mode="json")
