"""Ask the agent of a host for something. Each request says which host of which incarnation is meant."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from penstock.errors import (
    DamagedError,
    HostError,
    HostLostError,
    PenstockError,
    StorageError,
    SyncError,
)
from penstock.hosts.coordination import (
    PROGRESS,
    PULL,
    PULL_STATUS,
    PUSH,
    STATUS,
    Progress,
    PullPart,
    PullStatus,
    PushPart,
    body_of,
)
from penstock.hosts.messages import LOST_SECONDS, Membership
from penstock.storage.files import Content, Sink, explained, write_file

_log = logging.getLogger("penstock")

_ATTEMPTS = 3
_CONNECT_SECONDS = 5.0
_WORK_SECONDS = 600.0
"""So long may it take to make many files durable, or to read all of them."""

_changing = threading.Lock()
_fetching: dict[tuple[Path, Content], Future[None]] = {}
"""Files that come just now, to this process: whoever wants one of them too waits for it."""


class CopyRunsError(HostError):
    """The host copies another checkpoint just now."""


class _OtherBytesError(Exception):
    """What came is not what was expected."""


class Agent:
    """The agent of one host. Threads may share it."""

    def __init__(self, url: str, token: str, membership: Membership, timeout: float = 30.0) -> None:
        self.url = url
        self.membership = membership
        self._seconds = timeout
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", **membership.headers()},
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            transport=httpx.HTTPTransport(verify=False, socket_options=_socket_options()),
            trust_env=False,
        )

    def __str__(self) -> str:
        return f"{self.membership.host} at {self.url}"

    def close(self) -> None:
        self._http.close()

    # -- batches --------------------------------------------------------------------------------

    def fetch(self, trace: str, name: str, content: Content, path: Path) -> None:
        """Copy a batch from that host; the file has its name only when every byte of it was checked.

        It is not durable. `DamagedError` if the host does not have it, or not as it must be.
        """
        key = path, content
        mine: Future[None] = Future()
        with _changing:
            running = _fetching.setdefault(key, mine)
        if running is not mine:
            running.result()
            return
        try:
            self._fetch(trace, name, content, path)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(None)
        finally:
            with _changing:
                del _fetching[key]

    def _fetch(self, trace: str, name: str, content: Content, path: Path) -> None:
        what = f"fetch the batch {trace}/{name}"
        problem: PenstockError
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with explained(f"{self} could not be asked to {what}", "Make room on the disk of this host."):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_file(
                        path, lambda file: self._bytes(trace, name, content, what, file), durable=False
                    )
                return
            except _OtherBytesError as error:
                problem = DamagedError(
                    f"{self}: batch {trace}/{name} is damaged: expected {content}, found {error}"
                )
            except httpx.TransportError as error:  # it was cut off on the way
                problem = self._lost(what, error)
            _log.warning("%s (attempt %d of %d)", problem, attempt, _ATTEMPTS)
        raise problem

    def _bytes(self, trace: str, name: str, content: Content, what: str, file: Sink) -> None:
        with self._streamed(f"/batches/{quote(trace, safe='')}/{quote(name, safe='')}", what) as answer:
            for data in answer.iter_raw():
                file.write(data)
                if file.tell() > content.bytes:
                    raise _OtherBytesError(f"more than {content.bytes} bytes")
        if file.content != content:
            raise _OtherBytesError(file.content)

    def sync(self, batches: Mapping[str, Mapping[str, Content]]) -> None:
        """Make batches durable on that host."""
        if batches:
            what = f"make {_counted(batches)} durable"
            self._post("/batches/sync", {"batches": _contents(batches)}, what)

    def check(self, batches: Mapping[str, Mapping[str, Content]], *, deep: bool) -> list[str]:
        """What is wrong with batches on that host; `deep`: every byte of them is looked at."""
        body = {"batches": _contents(batches), "deep": deep}
        return list(self._post("/batches/check", body, f"check {_counted(batches)}")["faults"])

    def lacking(self, batches: Mapping[str, Mapping[str, Content]], *, deep: bool) -> set[tuple[str, str]]:
        """The batches that the host does not have, or not as they must be."""
        body = {"batches": _contents(batches), "deep": deep}
        found = self._post("/batches/check", body, f"check {_counted(batches)}")["batches"]
        return {(trace, name) for trace, name in found}

    def remove(self, batches: Collection[tuple[str, str]]) -> None:
        """Delete batches on that host, where they are there."""
        if batches:
            body = {"batches": sorted(batches)}
            self._post("/batches/remove", body, f"delete {len(batches)} batches")

    def discard(self, transaction: int, run: str) -> None:
        """Delete what a transaction of a run wrote on that host."""
        body = {"transaction": transaction, "run": run}
        self._post("/batches/discard", body, f"delete what transaction {transaction} wrote")

    def sweep(self, needed: Collection[tuple[str, str]]) -> None:
        """Delete all batches on that host but these, and what is half written: nobody may write meanwhile."""
        names: dict[str, list[str]] = {}
        for trace, name in sorted(needed):
            names.setdefault(trace, []).append(name)
        self._post("/batches/sweep", {"needed": names}, "delete the batches that nobody needs")

    # -- its part of checkpoints in an object store -----------------------------------------------

    def push(self, part: PushPart) -> Progress:
        """Send batches, or join that; when it takes long, it is not done, and to be joined again."""
        what = f"send its part of checkpoint {part.checkpoint}"
        return PROGRESS.validate_python(self._post(PUSH, body_of(part), what))

    def pull(self, part: PullPart) -> None:
        """Begin to fetch batches, or join that."""
        self._post(PULL, body_of(part), f"fetch its part of checkpoint {part.checkpoint}")

    def pull_status(self) -> PullStatus:
        """How far it has come with the last one."""
        return STATUS.validate_python(self._ask("GET", PULL_STATUS, "say how far its pull is"))

    # -- the host itself ------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """To what it belongs, how much it has, and whether its Spark worker runs."""
        return self._ask("GET", "/status", "say how it is")

    def over(self) -> None:
        """Tell it that this run of the coordinator is over."""
        self._ask("POST", "/over", "end its work")

    # -- asking ---------------------------------------------------------------------------------

    def _post(self, path: str, body: Any, what: str) -> dict[str, Any]:
        seconds = max(self._seconds, _WORK_SECONDS)
        timeout = httpx.Timeout(seconds, connect=min(self._seconds, _CONNECT_SECONDS))
        return self._ask("POST", path, what, json=body, timeout=timeout)

    def _ask(self, method: str, path: str, what: str, **more: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, **more)
        except httpx.TransportError as error:
            raise self._lost(what, error) from error
        self._refuse(what, answer)
        return _object(answer)

    @contextmanager
    def _streamed(self, path: str, what: str) -> Iterator[httpx.Response]:
        request = self._http.build_request("GET", path)
        try:
            answer = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._lost(what, error) from error
        try:
            if answer.is_error:
                answer.read()
            self._refuse(what, answer)
            yield answer
        finally:
            answer.close()

    def _lost(self, what: str, error: httpx.TransportError) -> HostLostError:
        reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error)
        return HostLostError(
            f"{self} does not answer: it was asked to {what} ({reason or type(error).__name__})",
            host=self.membership.host.index,
        )

    def _refuse(self, what: str, answer: httpx.Response) -> None:
        """Raise what the host says is wrong."""
        if answer.is_success:
            return
        said = _object(answer)
        message = said.get(
            "message", f"HTTP status {answer.status_code}, which no agent of Penstock gives so"
        )
        text = f"{self} did not {what}: {message}"
        host = self.membership.host.index
        match answer.status_code, said.get("error_code"):
            case 404, "NoSuchBatch":
                raise DamagedError(text)
            case 409, "OtherCopy":
                raise CopyRunsError(text, host=host)
            case 500, DamagedError.code:
                raise DamagedError(text, (said.get("details") or {}).get("faults", ()))
            case 500, StorageError.code:
                raise StorageError(text)
            case 502, SyncError.code:
                raise SyncError(text, **(said.get("details") or {}))
            case 503, _:
                raise HostLostError(text, host=host)
        raise HostError(text, host=host)


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _contents(batches: Mapping[str, Mapping[str, Content]]) -> dict[str, dict[str, Any]]:
    return {
        trace: {name: {"bytes": c.bytes, "checksum": c.checksum} for name, c in contents.items()}
        for trace, contents in batches.items()
    }


def _counted(batches: Mapping[str, Mapping[str, Content]]) -> str:
    number = sum(len(contents) for contents in batches.values())
    return f"{number} batch" if number == 1 else f"{number} batches"


def _socket_options() -> list[tuple[int, int, int]]:
    """A host that is cut off is noticed however long it may take for its answer."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if sys.platform == "linux":
        options += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LOST_SECONDS * 1000)),
        ]
    return options
