"""The coordinator of a pipeline on several hosts: hosts check in with it, and it knows who is there."""

from __future__ import annotations

import json
import platform
import re
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import xxhash
from fastapi import Body, Depends, FastAPI, Request, Response
from pydantic import TypeAdapter, ValidationError

from penstock.connectors import Part
from penstock.errors import ConnectorError, HostError, HostLostError
from penstock.hosts.awake import AwakeClock
from penstock.hosts.client import Agent
from penstock.hosts.messages import (
    COORDINATOR_FILE,
    SECRET_FILE,
    Admission,
    CheckIn,
    HostIndex,
    Membership,
    Place,
)
from penstock.hosts.private import kept_secret, write_private
from penstock.hosts.refusals import RefusalError, install_handlers, knows
from penstock.hosts.registry import Known, Registry, refuse_other_version
from penstock.hosts.serving import Server
from penstock.storage.files import explained, remove_garbage
from penstock.trace.host import CHECKSUM

_ANSWER_SECONDS = 60.0
_SHORT_SECONDS = 2.0
_SAY_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_CHECK_IN: TypeAdapter[CheckIn] = TypeAdapter(CheckIn)
_JOURNAL = re.compile(r"journal(-[0-9a-f-]{36})?")
_ROWS = re.compile(r"\d{12,}(\.log|-\d+\.arrow)")
_ANY_ADDRESS = ("0.0.0.0", "::", "")


class Coordinator:
    """One incarnation of it: from one start of the pipeline to its end."""

    def __init__(
        self,
        directory: Path,
        pipeline: str,
        count: int,
        workers: int,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """`directory`: the pipeline's storage; `pipeline`: its id; `workers`: Spark tasks at once on each
        host."""
        HostIndex(0, count)
        if address in _ANY_ADDRESS:
            raise HostError(f"{address!r} is no address at which hosts could find the coordinator: give one")
        self.directory = directory
        self.pipeline = pipeline
        self.count = count
        self.workers = workers
        self.incarnation = secrets.token_hex(8)
        self.token = secrets.token_urlsafe(32)
        self.spark_secret = secrets.token_urlsafe(32)
        self._address = address
        self._port = port
        self._clock = AwakeClock()
        self._registry = Registry(pipeline, count, platform.python_version(), self._clock.now)
        self._server: Server | None = None
        self._master = ""
        self._secret = ""
        self._agents: dict[int, Agent] = {}
        self._changing = threading.Lock()
        self._seen: dict[int, str] = {}
        """The agents that answered, by index: their URLs."""
        self._closing = threading.Event()

    # -- opening and closing --------------------------------------------------------------------

    def open(self, master: str) -> None:
        """Begin to listen, and write into the pipeline's storage where."""
        self._master = master
        with explained(f"{self.directory} cannot be used", "Check the disk and its rights."):
            self._secret = kept_secret(self.directory / SECRET_FILE)
        self._server = server = Server(self._address, self._port)
        server.start(self._app(), "penstock coordinator")
        self._clock.look(self._closing)
        place = Place(server.url, self._secret, self.pipeline, self.incarnation, self.count)
        with explained(f"{self.directory} cannot be used", "Check the disk and its rights."):
            write_private(self._file, json.dumps(asdict(place), indent=1) + "\n")

    def close(self) -> None:
        """Tell the hosts that this run is over, and stop listening."""
        if self._server is None or self._closing.is_set():
            return
        self._closing.set()
        self._remove_file()
        threads = [threading.Thread(target=self._tell_over, args=(index,)) for index in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._server.close()
        with self._changing:
            for agent in self._agents.values():
                agent.close()
            self._agents.clear()

    def _remove_file(self) -> None:
        """Unless it is that of another incarnation by now."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            if json.loads(self._file.read_text("utf-8"))["incarnation"] == self.incarnation:
                remove_garbage(self._file)

    def _tell_over(self, index: int) -> None:
        """A host that cannot be told notices that the coordinator does not answer."""
        known = self._registry.get(index)
        if known is None:
            return
        with suppress(HostError):
            agent = self._new_agent(index, known, _SHORT_SECONDS)
            try:
                agent.over()
            finally:
                agent.close()

    @property
    def _file(self) -> Path:
        return self.directory / COORDINATOR_FILE

    # -- what hosts ask -------------------------------------------------------------------------

    def _app(self) -> FastAPI:
        app = FastAPI(title="Penstock coordinator", openapi_url=None, docs_url=None, redoc_url=None)
        install_handlers(app, "the coordinator")

        @app.post("/hosts/check-in")
        async def check_in(request: Request, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
            if not knows(request.headers, self._secret):
                raise RefusalError(
                    401,
                    "Unauthorized",
                    f"the secret of this check-in is not that of pipeline {self.pipeline}, which is in"
                    f" {self.directory / SECRET_FILE}",
                )
            return asdict(self._admitted(body))

        @app.get("/journal/{directory}/{name}")
        def rows(request: Request, directory: str, name: str, part: Annotated[Part, Depends()]) -> Response:
            if not knows(request.headers, self.token):
                raise RefusalError(
                    401,
                    "Unauthorized",
                    f"the token of the request is not that of incarnation {self.incarnation}",
                )
            if not (_JOURNAL.fullmatch(directory) and _ROWS.fullmatch(name)):
                raise RefusalError(400, "InvalidName", f"{directory}/{name} has no rows of a journal")
            try:
                data = part.read(self.directory / directory / name)
            except (ConnectorError, OSError) as error:
                raise RefusalError(404, "NoSuchRows", str(error)) from error
            return Response(data, headers={CHECKSUM: xxhash.xxh3_128_hexdigest(data)})

        return app

    def url_of(self, path: Path) -> str:
        """Where tasks can ask for rows of the journal."""
        assert self._server is not None, "it is open"
        return f"{self._server.url}/journal/{path.relative_to(self.directory).as_posix()}"

    def _admitted(self, body: Mapping[str, Any]) -> Admission:
        if self._closing.is_set():
            raise RefusalError(503, "Over", f"incarnation {self.incarnation} of the coordinator is over")
        refuse_other_version(body.get("version"), body.get("index"))
        try:
            said = _CHECK_IN.validate_python(body)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise RefusalError(400, "InvalidRequest", f"invalid check-in: {field}: {first['msg']}") from error
        self._registry.admit(said)
        return Admission(
            self.pipeline,
            self.incarnation,
            self.count,
            self.token,
            self.workers,
            self._master,
            self.spark_secret,
            said.process,
        )

    # -- who is there ---------------------------------------------------------------------------

    def wait(
        self, stopped: Callable[[], bool] = lambda: False, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Until all hosts are in and answer; says now and then which are not, and how to start them."""
        said, at = "", 0.0
        while not stopped() and (missing := self._missing()):
            text = "\n".join(missing.values())
            if text != said or time.monotonic() - at >= _SAY_SECONDS:
                say(text)
                said, at = text, time.monotonic()
            time.sleep(_LOOK_SECONDS)

    def _missing(self) -> dict[int, str]:
        """The hosts that cannot be asked for something, and why."""
        lost = self._registry.lost()
        found = {}
        for index in range(self.count):
            known = self._registry.get(index)
            if known is None:
                command = f"penstock host --index {index} --coordinator {shlex.quote(str(self.directory))}"
                found[index] = (
                    f"Waiting for host {index} of {self.count}. Start it with: {command} --storage DIR"
                )
            elif index in lost:
                found[index] = f"Waiting for host {index} of {self.count}: {lost[index]}"
            elif (reason := self._silent(index, known)) is not None:
                found[index] = f"Waiting for host {index} of {self.count}: {reason}"
        return found

    def _silent(self, index: int, known: Known) -> str | None:
        """Why the agent of a host that checked in does not answer as it must; None if it does."""
        if self._seen.get(index) == known.said.url:
            return None
        try:
            self.refuse_silent(index)
        except HostError as error:
            return str(error)
        self._seen[index] = known.said.url
        return None

    def refuse_silent(self, index: int) -> None:
        """`HostError` if the agent of a host does not answer now."""
        agent = self._new_agent(index, self._of(index), _SHORT_SECONDS)
        try:
            agent.status()
        finally:
            agent.close()

    def agent(self, index: int) -> Agent:
        """Whom to ask for something on a host; `HostLostError` if it has not checked in."""
        known = self._of(index)
        with self._changing:
            agent = self._agents.get(index)
            if agent is None or agent.url != known.said.url:  # threads may still use the one before
                self._agents[index] = agent = self._new_agent(index, known, _ANSWER_SECONDS)
            return agent

    def _new_agent(self, index: int, known: Known, seconds: float) -> Agent:
        return Agent(known.said.url, self.token, self.membership(index), seconds)

    def membership(self, index: int) -> Membership:
        """What a request to a host says that it is meant for."""
        return Membership(self.pipeline, self.incarnation, HostIndex(index, self.count))

    def _of(self, index: int) -> Known:
        host = HostIndex(index, self.count)
        known = self._registry.get(index)
        if known is None:
            raise HostLostError(f"{host} has not checked in with this run of the coordinator", host=index)
        return known

    def urls(self) -> list[str]:
        """Of the agents, by index."""
        return [self._of(index).said.url for index in range(self.count)]

    def addresses(self) -> list[str]:
        """Of the hosts, by index, as Spark knows them."""
        return [self._of(index).said.address for index in range(self.count)]

    def processes(self) -> list[str]:
        """Of the hosts, by index: another one is that of a host which was started again."""
        return [self._of(index).said.process for index in range(self.count)]

    def lost(self) -> dict[int, str]:
        """The hosts that gave no sign of life for `LOST_SECONDS`, and since when."""
        return self._registry.lost()

    def refuse_lost(self) -> None:
        """`HostLostError` if hosts are lost; names them."""
        if lost := self.lost():
            raise HostLostError("; ".join(lost.values()), host=min(lost))

    def stats(self) -> dict[str, Any]:
        """As plain JSON, for people and metrics."""
        lost = self.lost()
        hosts = []
        for index in range(self.count):
            known = self._registry.get(index)
            said = None if known is None else known.said
            hosts.append(
                {
                    "index": index,
                    "in": known is not None and index not in lost,
                    "lost": lost.get(index),
                    "address": said and said.address,
                    "url": said and said.url,
                    "storage": said and said.storage,
                    "joined": known and known.since.isoformat(),
                    "last_sign_of_life": known and known.at.isoformat(),
                }
            )
        return {
            "count": self.count,
            "incarnation": self.incarnation,
            "url": None if self._server is None else self._server.url,
            "hosts": hosts,
        }
