"""A host's part of checkpoints in an object store: it sends its own batches, and fetches them, as it is told.

At most one push and one pull run at a time. Whoever asks for the same one joins it; another one is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.errors import DamagedError, HostError, PenstockError, SyncError
from penstock.failpoints import failpoint
from penstock.hosts.coordination import (
    Progress,
    PullError,
    PullPart,
    PullState,
    PullStatus,
    PushPart,
)
from penstock.hosts.refusals import RefusalError
from penstock.storage.files import explained
from penstock.sync.copying import Copied, Stop
from penstock.trace.files import BatchFiles

if TYPE_CHECKING:
    from penstock.sync.model import Piece

P = TypeVar("P", bound=PushPart)


@dataclass
class Job(Generic[P]):
    """A push or a pull, and how it ended."""

    part: P
    copied: Copied = field(default_factory=Copied)
    stop: Stop = field(default_factory=Stop)
    error: PenstockError | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        copied = self.copied
        return Progress(
            self.part.checkpoint,
            copied.files,
            copied.files_done,
            copied.bytes,
            copied.bytes_done,
            self.ended.is_set() and self.error is None,
        )


class Lane(Generic[P]):
    """The last one of a kind; `act` does it."""

    def __init__(self, kind: str, act: Callable[[Job[P]], None]) -> None:
        self.job: Job[P] | None = None
        self._kind = kind
        self._act = act
        self._changing = threading.Lock()

    def begin(self, part: P, refuse: Callable[[P], None] = lambda _: None) -> Job[P]:
        """Begin, or join the same one; `RefusalError` if another one runs. Between `refuse`, which may raise,
        and the beginning nothing can `end` it."""
        with self._changing:
            refuse(part)
            running = self.job
            if running is not None and not running.ended.is_set():
                if running.part != part or running.stop.asked:
                    raise self._busy(running, part)
                return running
            job = Job(part)
            name = f"penstock {self._kind}"
            threading.Thread(target=self._run, args=(job,), name=name, daemon=True).start()
            self.job = job
            return job

    def _busy(self, running: Job[P], part: P) -> RefusalError:
        return RefusalError(
            409,
            "OtherCopy",
            f"a {self._kind} of checkpoint {running.part.checkpoint} runs ({running.copied}), and a different"
            f" one was asked for, of checkpoint {part.checkpoint}: ask again when it is done",
            {"running": running.part.checkpoint, "asked": part.checkpoint},
        )

    def _run(self, job: Job[P]) -> None:
        try:
            with explained(f"the {self._kind} failed", "Check the disk of this host."):
                self._act(job)
        except PenstockError as error:
            job.error = error
        except Exception as error:  # nothing may end the thread without a word
            job.error = HostError(f"the {self._kind} failed: {type(error).__name__}: {error}")
            job.error.__cause__ = error
        job.ended.set()

    def stop(self) -> None:
        """Let what runs end soon."""
        with self._changing:
            if self.job is not None:
                self.job.stop.ask()

    def wait(self) -> None:
        """Until nothing runs."""
        if (job := self.job) is not None:
            job.ended.wait()


class OwnPart:
    """That of the host with these batches."""

    def __init__(self, files: BatchFiles) -> None:
        self._files = files
        self.pushes: Lane[PushPart] = Lane("push", self._push)
        self.pulls: Lane[PullPart] = Lane("pull", self._pull)

    def _push(self, job: Job[PushPart]) -> None:
        from penstock.storage.location import Location  # what few hosts need is not loaded by all
        from penstock.sync.sending import Sender

        part = job.part
        sender = Sender(Location(part.sync, part.bucket), part.sync, job.stop)
        lacking = sender.missing(self._pieces(part))
        job.copied.expect(lacking)
        sender.send(lacking, job.copied)
        failpoint("host.sent")

    def _pull(self, job: Job[PullPart]) -> None:
        from penstock.storage.location import Location
        from penstock.sync.fetching import Fetcher, missing

        part = job.part
        lacking = missing(self._pieces(part), job.stop)
        job.copied.expect(lacking)
        Fetcher(Location(part.sync, part.bucket), part.sync, job.stop).fetch(lacking, job.copied)
        failpoint("host.fetched")

    def _pieces(self, part: PushPart) -> list[Piece]:
        from penstock.sync.model import Piece

        return [Piece(b.key, self._files.path(b.trace, b.name), b.content) for b in part.batches]

    def pull_status(self) -> PullStatus:
        """Of the pull that runs, or ran last, unless it was stopped."""
        job = self.pulls.job
        if job is None or job.stop.asked:
            return PullStatus(PullState.NOT_STARTED)
        if not job.ended.is_set():
            return PullStatus(PullState.IN_PROGRESS, job.part.standby, job.progress)
        if job.error is None:
            return PullStatus(PullState.DONE, job.part.standby, job.progress)
        return PullStatus(PullState.ERROR, job.part.standby, job.progress, _told(job.error))

    def stop(self) -> None:
        """The run that asked for it is over: let it end soon."""
        self.pushes.stop()
        self.pulls.stop()

    def wait(self) -> None:
        """Until nothing is copied."""
        self.pushes.wait()
        self.pulls.wait()


def _told(error: PenstockError) -> PullError:
    if not isinstance(error, SyncError | DamagedError):
        return PullError(error.code, str(error))
    status = error.status if isinstance(error, SyncError) else None
    return PullError(error.code, str(error), error.bucket, error.key, status)
