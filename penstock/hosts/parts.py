"""The coordinator's side of checkpoints in an object store: all hosts send, or fetch, their batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.errors import DamagedError, HostError, HostLostError, PenstockError, SyncError
from penstock.hosts.client import CopyRunsError
from penstock.hosts.coordination import (
    Batch,
    Progress,
    PullError,
    PullPart,
    PullState,
    PushPart,
)
from penstock.hosts.coordinator import Coordinator
from penstock.references import resolved
from penstock.storage.files import Content
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Copied, Stop
from penstock.sync.model import Piece

_LOOK_SECONDS = 0.2


class HostParts:
    """Asks the hosts' agents. `wait` waits until all of them answer; it raises if the pipeline is stopped."""

    def __init__(
        self,
        coordinator: Coordinator,
        config: SyncConfig,
        wait: Callable[[], None],
        standing_by: Callable[[], bool] = lambda: False,
    ) -> None:
        self._coordinator = coordinator
        self._config = _with_keys(config)
        self._wait = wait
        self._standing_by = standing_by

    def push(self, checkpoint: str, pieces: Sequence[Piece], copied: Copied, stop: Stop) -> None:
        progresses = _Sum(copied)

        def push(host: int, batches: tuple[Batch, ...]) -> None:
            membership = self._coordinator.membership(host)
            part = PushPart(membership, checkpoint, self._config.bucket, self._config, batches)
            done = False
            while not done:
                stop.check()
                try:
                    progress = self._coordinator.agent(host).push(part)
                except CopyRunsError:  # one that was given up ends soon
                    time.sleep(_LOOK_SECONDS)
                    continue
                progresses.put(host, progress)
                done = progress.done

        self._each(push, _by_host(pieces))

    def pull(
        self, checkpoint: str, location: Location, pieces: Sequence[Piece], copied: Copied, stop: Stop
    ) -> None:
        progresses = _Sum(copied)

        def pull(host: int, batches: tuple[Batch, ...]) -> None:
            part = PullPart(
                self._coordinator.membership(host),
                checkpoint,
                location.place,
                self._config,
                batches,
                self._standing_by(),
            )
            begun = done = False
            while not done:
                stop.check()
                try:
                    if not begun:
                        self._coordinator.agent(host).pull(part)
                        begun = True
                    status = self._coordinator.agent(host).pull_status()
                except HostLostError:
                    self._wait()
                    continue
                except CopyRunsError:
                    time.sleep(_LOOK_SECONDS)
                    continue
                if status.error is not None:
                    raise _raised(status.error, host)
                if status.progress is not None:
                    progresses.put(host, status.progress)
                begun = status.state is not PullState.NOT_STARTED  # or it was started again
                done = status.state is PullState.DONE
                if not done:
                    time.sleep(_LOOK_SECONDS)

        self._each(pull, _by_host(pieces))

    def lacking(self, pieces: Sequence[Piece], *, deep: bool) -> list[Piece]:
        found: list[Piece] = []

        def look(host: int, batches: tuple[Batch, ...]) -> None:
            contents: dict[str, dict[str, Content]] = {}
            for batch in batches:
                contents.setdefault(batch.trace, {})[batch.name] = batch.content
            gone = self._coordinator.agent(host).lacking(contents, deep=deep)
            found.extend(p for p in pieces if p.host == host and _name(p) in gone)

        self._each(look, _by_host(pieces))
        return found

    def _each(
        self, act: Callable[[int, tuple[Batch, ...]], None], by_host: Mapping[int, tuple[Batch, ...]]
    ) -> None:
        """All hosts at the same time; the first error is raised when all have ended."""
        with ThreadPoolExecutor(self._coordinator.count, "penstock parts") as pool:
            asked = [pool.submit(act, host, batches) for host, batches in by_host.items()]
        for one in asked:
            one.result()


class _Sum:
    """What hosts copied, added to what is copied in all."""

    def __init__(self, copied: Copied) -> None:
        self._copied = copied
        self._before: dict[int, Progress] = {}
        self._changing = threading.Lock()

    def put(self, host: int, now: Progress) -> None:
        """How far a host is by now."""
        with self._changing:
            before = self._before.get(host, Progress("", 0, 0, 0, 0, False))
            self._before[host] = now
            self._copied.files += now.files - before.files
            self._copied.files_done += now.files_done - before.files_done
            self._copied.bytes += now.bytes - before.bytes
            self._copied.bytes_done += now.bytes_done - before.bytes_done


def _by_host(pieces: Sequence[Piece]) -> dict[int, tuple[Batch, ...]]:
    found: dict[int, list[Batch]] = {}
    for piece in pieces:
        found.setdefault(piece.host, []).append(Batch(*_name(piece), piece.key, piece.content))
    return {host: tuple(batches) for host, batches in found.items()}


def _name(piece: Piece) -> tuple[str, str]:
    return piece.path.parent.name, piece.path.stem


def _with_keys(config: SyncConfig) -> SyncConfig:
    """Hosts need not know the secrets that a configuration refers to."""
    keys = {"access_key": config.access_key, "secret_key": config.secret_key}
    return config.model_copy(update={k: None if v is None else resolved(v) for k, v in keys.items()})


def _raised(error: PullError, host: int) -> PenstockError:
    text = f"host {host}: {error.message}"
    if error.kind == DamagedError.code:
        return DamagedError(text, bucket=error.bucket, key=error.key)
    if error.kind == SyncError.code:
        return SyncError(text, bucket=error.bucket, key=error.key, status=error.status)
    return HostError(text, host=host)
