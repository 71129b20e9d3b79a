"""The manager as a server: its directory, its application, its beginning and its end."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from penstock._version import __version__
from penstock.errors import PenstockError
from penstock.service.errors import install_handlers
from penstock.service.manager import (
    routes_bundle,
    routes_pipelines,
    routes_platform,
    routes_refused,
    routes_running,
)
from penstock.service.manager.access import Access, BodyLimit
from penstock.service.manager.document import describe
from penstock.service.manager.proxy import Shortcut, is_unexpected
from penstock.service.manager.service import Service
from penstock.service.manager.settings import Settings

_log = logging.getLogger("penstock.manager")

FIRST_KEY_FILE = "first-api-key"
_CLOSE_SECONDS = 3

Say = Callable[[str], None]


class ServiceError(PenstockError):
    """The service cannot be started."""

    code = "SERVICE"


def create_app(service: Service) -> FastAPI:
    """The application for a service; starting and ending the service is the caller's."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.proxy.close()

    app = FastAPI(
        title="Penstock",
        version=__version__,
        description="Keeps SQL views up to date on Apache Spark, transaction by transaction.",
        lifespan=lifespan,
    )
    app.state.service = service
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    install_handlers(app)
    for routes in (routes_pipelines, routes_running, routes_platform, routes_bundle, routes_refused):
        app.include_router(routes.router)
    app.add_middleware(Shortcut, proxy=service.proxy)
    app.add_middleware(BodyLimit, settings=service.settings)
    app.add_middleware(Access, settings=service.settings, keys=service.keys)
    return app


@contextlib.contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One manager for a directory at a time. The lock goes with the process, however it ends."""
    settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.directory / "LOCK").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ServiceError(
                f"the directory {settings.directory} is in use by another manager: stop it, or use another"
            ) from error
        yield


def serve(settings: Settings, say: Say) -> None:
    """Run until Ctrl-C or SIGTERM, then stop every pipeline with a checkpoint; the second leaves at once."""
    with locked(settings), _listening(settings) as listener, _Interrupt.caught() as interrupt:
        service = Service(settings)
        _make_first_key(service, say)
        config = uvicorn.Config(
            create_app(service),
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
            server_header=False,
        )
        logging.getLogger("uvicorn.error").addFilter(is_unexpected)
        server = _Server(config)
        interrupt.when_asked(lambda: setattr(server, "should_exit", True))
        service.start()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        say(f"Penstock {__version__} listens on http://{host}:{listener.getsockname()[1]}")
        try:
            server.run(sockets=[listener])
            say("Stopping ...")
            service.end(say)
        except KeyboardInterrupt:
            say("Left at once; what was not told to stop goes on, and the next manager finds it.")
            service.end(say, at_once=True)


class _Server(uvicorn.Server):
    """Leaves the signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Interrupt:
    """Ctrl-C and SIGTERM: the first asks to end in order, the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._asked = False
        self._then: Callable[[], object] | None = None

    def when_asked(self, then: Callable[[], object]) -> None:
        self._then = then
        if self._asked:
            then()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        if self._then is not None:
            self._then()

    @classmethod
    @contextlib.contextmanager
    def caught(cls) -> Iterator[_Interrupt]:
        interrupt = cls()
        if threading.current_thread() is not threading.main_thread():
            yield interrupt
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, interrupt._handle) for number in numbers}
        try:
            yield interrupt
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Taken before anything is started, so that a port in use is found at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ServiceError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    with listener:
        yield listener


def _make_first_key(service: Service, say: Say) -> None:
    """Where keys are needed and there is none, one is made, in a file that only its owner reads."""
    if not service.settings.needs_keys or not service.keys.is_empty():
        return
    path = service.settings.directory / FIRST_KEY_FILE
    key = service.keys.create("first", "write")["api_key"]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
    say(f"API keys are required. The first one, which may do everything, is in {path}")
