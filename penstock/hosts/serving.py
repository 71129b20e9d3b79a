"""An HTTP application, served by a thread of this process."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn
from starlette.types import ASGIApp

from penstock.errors import HostError

_KEPT_SECONDS = 3600
"""Whoever asks closes a connection that is not needed; closed from here, a request would get no answer."""

_START_SECONDS = 30.0


class Server:
    """Listens on an address of this machine from the moment it is made."""

    def __init__(self, address: str, port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server((address, port), family=family)
        except OSError as error:
            raise HostError(
                f"cannot listen on {address}, port {port or 'any'}: {error.strerror or error}. Give an"
                " address that this machine has."
            ) from error
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, app: ASGIApp, name: str) -> None:
        """Begin to answer."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            timeout_keep_alive=_KEPT_SECONDS,
        )
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [self._listener]}, name=name, daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise HostError(f"the server at {self.url} did not start; the log says why")
            time.sleep(0.01)

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_START_SECONDS)
        self._listener.close()
