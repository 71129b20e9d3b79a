"""A line to an object store that fails as lines and stores do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OWN_HEADERS = ("content-length", "transfer-encoding", "connection", "date", "server")


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    method: str
    path: str

    @property
    def is_listing(self) -> bool:
        return "list-type" in self.path


@dataclass
class Fault:
    """What goes wrong with the requests that fit, `times` times."""

    fits: Callable[[Request], bool]
    times: int
    status: int | None = None  # this is the answer
    cut: bool = False  # there is none
    cut_body: bool = False  # half of it comes
    after: bool = False  # the store does it first
    delay_s: float = 0
    flip: bool = False  # a bit of the answer is wrong


@dataclass
class Line:
    """The faults to come, and what was asked for."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, request: Request) -> Fault | None:
        with self._lock:
            self.asked.append(request)
            for fault in self.faults:
                if fault.times and fault.fits(request):
                    fault.times -= 1
                    return fault
        return None

    @property
    def left(self) -> int:
        return sum(fault.times for fault in self.faults)


@contextmanager
def faulty(store: str) -> Iterator[Line]:
    """A line to the store at this URL."""
    target = urlsplit(store)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = line.fault(Request(self.command, self.path))
            if fault is None:
                self._answer(*self._ask(body))
                return
            if fault.after:
                self._ask(body)
            time.sleep(fault.delay_s)
            if fault.status is not None:
                self._answer(fault.status, {}, b"<Error><Code>Injected</Code></Error>")
            elif fault.cut:
                self.close_connection = True
            else:
                status, headers, data = self._ask(body)
                if fault.flip and data:
                    data = bytes([data[0] ^ 1]) + data[1:]
                self._answer(status, headers, data, half=fault.cut_body)

        def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=30)
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            return answer.status, dict(answer.getheaders()), data

        def _answer(self, status: int, headers: dict[str, str], data: bytes, half: bool = False) -> None:
            length = str(len(data))
            if self.command == "HEAD":
                length = headers.get("Content-Length", length)
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if half else data)
            if half:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    line = Line(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield line
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
