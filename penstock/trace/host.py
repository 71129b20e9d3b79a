"""The host that a Spark task runs on, if a pipeline runs on several: its batches, and those of the others.

A batch lies on the host whose task wrote it. Another host that needs it fetches it once from that one's
agent, compares its checksum, and keeps it: batches never change.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import xxhash

from penstock.errors import DamagedError, HostError, HostLostError
from penstock.storage.files import Content, Sink, write_file
from penstock.trace import seen
from penstock.trace.files import Copies
from penstock.trace.rows import Span
from penstock.trace.seen import Seen

ENVIRONMENT = "PENSTOCK_HOST"
"""What a host tells the Spark worker that it starts, and so all tasks: who it is, as JSON."""

FILE_ENVIRONMENT = "PENSTOCK_HOST_FILE"
"""Where a host that stands beside the executors of another cluster has written that for them."""

CHECKSUM = "Penstock-Checksum"
"""The header of an answer with the checksum of what it has (XXH3, 128 bits, as hex digits)."""

COPIES = "copies"
"""The directory of a host's storage that has batches of other hosts, for as long as an incarnation lasts."""

WRITTEN, HELD, FETCHED = "written", "held", "fetched"
"""How a task came to a batch: its host wrote it, had it from another one already, or fetched it."""

_direct = build_opener(ProxyHandler({}))
"""Hosts ask each other, and no proxy that is there for other things."""

_PATIENCE_SECONDS = 30.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class Host:
    """Who this host is."""

    pipeline: str
    incarnation: str
    index: int
    count: int
    directory: Path
    token: str = field(repr=False)
    process: str = ""
    """A random id of the process that looks after it."""

    @classmethod
    def here(cls) -> Host:
        """The host of this process; `HostError` if it is none of a pipeline's."""
        text = os.environ.get(ENVIRONMENT)
        return _host(_told_by_file() if text is None else text)

    @property
    def batches(self) -> Path:
        return self.directory / "batches"

    def asked(self, url: str) -> bytes:
        """What the coordinator answers. `HostLostError` if it cannot be reached from here: then this host is
        cut off."""
        for _ in range(_ATTEMPTS):
            try:
                with _direct.open(Request(url, headers=self.headers()), timeout=_PATIENCE_SECONDS) as answer:
                    data: bytes = answer.read()
                    checksum = answer.headers[CHECKSUM]
            except HTTPError as error:
                text = error.read().decode(errors="replace")
                if error.code == HTTPStatus.NOT_FOUND:  # to ask again would be in vain
                    raise DamagedError(f"the coordinator: {text}") from error
                raise HostError(f"the coordinator refused {url}: {text}", host=self.index) from error
            except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
                raise HostLostError(
                    f"host {self.index} cannot reach the coordinator: {url}: {error}", host=self.index
                ) from error
            if xxhash.xxh3_128_hexdigest(data) == checksum:
                return data
        raise DamagedError(f"{url} came damaged to host {self.index}, {_ATTEMPTS} times")

    def headers(self) -> dict[str, str]:
        """By which others see that a request is of this pipeline's."""
        return {
            "Authorization": f"Bearer {self.token}",
            "Penstock-Pipeline": self.pipeline,
            "Penstock-Incarnation": self.incarnation,
            "Penstock-Hosts": str(self.count),
        }


def _told_by_file() -> str:
    path = os.environ.get(FILE_ENVIRONMENT)
    if path is None:
        raise HostError(
            "a task of a pipeline on several hosts was run where none of them is: start Spark's workers with"
            f" 'penstock host', or have executors of a cluster that is there already know {FILE_ENVIRONMENT}"
        )
    try:
        return Path(path).read_text()
    except FileNotFoundError as error:
        raise HostLostError(
            f"a task was run where no host is now: {path} is missing. If it does not come back by itself,"
            f" start 'penstock host --beside {path}' on that machine"
        ) from error
    except OSError as error:
        raise HostError(
            f"a task was run where its host cannot be known: {path} cannot be read ({error.strerror}). Run"
            f" 'penstock host --beside {path}' on that machine as the user that Spark's executors have"
        ) from error


@lru_cache(maxsize=1)
def _host(text: str) -> Host:
    found = json.loads(text)
    return Host(**{**found, "directory": Path(found["directory"])})


@dataclass(frozen=True)
class Hosts:
    """All hosts, as a transaction sees them."""

    here: Host
    agents: list[str]
    where: Mapping[str, Mapping[str, list[Any]]]
    """Of each batch: the host whose task wrote it, what it must contain, its first and its last key."""

    @classmethod
    def of(cls, facts: Mapping[str, Any], transaction: int) -> Hosts:
        """What the driver says; refused if it speaks of other hosts than this one belongs to, or of a program
        or a transaction that others came after here."""
        here = Host.here()
        for what, expected in (("pipeline", here.pipeline), ("incarnation", here.incarnation)):
            if facts[what] != expected:
                raise HostError(
                    f"host {here.index} belongs to {what} {expected}, and this transaction is of"
                    f" {facts[what]}: nothing was done",
                    host=here.index,
                )
        if len(facts["agents"]) != here.count:
            raise HostError(
                f"host {here.index} is one of {here.count}, and this transaction is for"
                f" {len(facts['agents'])}: nothing was done",
                host=here.index,
            )
        if facts["processes"][here.index] != here.process:
            raise HostLostError(
                f"host {here.index} was started again since this transaction began: nothing was done",
                host=here.index,
            )
        seen.admit(here.directory, here.index, Seen.of(facts, transaction))
        return cls(here, facts["agents"], facts["where"])

    def may_have(self, trace: str, name: str, keys: Span) -> bool:
        """Whether one of these keys can be in a batch."""
        *_, first, last = self.where[trace][name]
        return first is None or Span(first, last).meets(keys)

    def is_own(self, trace: str, name: str) -> bool:
        """Whether a batch was written here, and is no copy."""
        return bool(self.where[trace][name][0] == self.here.index)

    def at_hand(self, trace: str, name: str) -> tuple[Path, str]:
        """Where a batch can be read here, and how that came."""
        index, size, checksum, *_ = self.where[trace][name]
        if index == self.here.index:
            return self.here.batches / trace / f"{name}.arrow", WRITTEN
        path = Copies(self.here.directory / COPIES).path(trace, name, checksum)
        if path.exists():
            return path, HELD
        self._fetch(index, trace, name, Content(size, checksum), path)
        return path, FETCHED

    def _fetch(self, index: int, trace: str, name: str, content: Content, path: Path) -> None:
        """A wrong byte may have come on the way: it is fetched again."""
        url = f"{self.agents[index]}/batches/{quote(trace, safe='')}/{quote(name, safe='')}"
        path.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                request = Request(url, headers=self._headers(index))
                with _direct.open(request, timeout=_PATIENCE_SECONDS) as answer:
                    write_file(path, partial(_copy, answer, content, url), durable=False)
            except HTTPError as error:
                text = error.read().decode(errors="replace")
                if error.code == HTTPStatus.NOT_FOUND:
                    raise DamagedError(f"host {index}: {text}") from error
                if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it was started, and has not joined yet
                    raise HostLostError(f"host {index}: {text}", host=index) from error
                raise HostError(f"host {index} refused: {text}", host=index) from error
            except DamagedError as error:
                if attempt == _ATTEMPTS:
                    raise DamagedError(f"host {index}, fetched {attempt} times: {error}") from error
            except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
                raise HostLostError(
                    f"host {index} at {self.agents[index]} does not answer: {error}", host=index
                ) from error
            else:
                return

    def _headers(self, index: int) -> dict[str, str]:
        return {**self.here.headers(), "Penstock-Host": str(index)}


def _copy(source: IO[bytes], content: Content, url: str, file: Sink) -> None:
    """What comes, if it is what it must be: else it never has the name of a batch."""
    shutil.copyfileobj(source, file, 4 << 20)
    if file.content != content:
        raise DamagedError(f"{url} is damaged: expected {content}, found {file.content}")
