"""The service over HTTP: every answer that is no success becomes a `CommandError`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from penstock.cli.exit_codes import ExitCode
from penstock.cli.service.refusals import CommandError, refused
from penstock.service.manager.settings import is_loopback

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 300.0
"""A program may have to wait for the compiler; everything else answers at once."""

Query = str | int | bool | None


class Client:
    """Paths are given in parts, which are escaped."""

    def __init__(self, url: str, api_key: str | None, *, seconds: float = _ANSWER_SECONDS) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            headers=_authorization(api_key),
            timeout=httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            trust_env=not is_loopback(_hostname(url)),  # proxies are for other machines
            verify=not url.startswith("http:"),  # reading the certificates of the system takes a while
        )

    def close(self) -> None:
        self._http.close()

    def get(self, *path: str, **query: Query) -> Any:
        return _json(self.request("GET", *path, query=query))

    def post(self, *path: str, body: Any = None, **query: Query) -> Any:
        return _json(self.request("POST", *path, query=query, body=body))

    def patch(self, *path: str, body: Any) -> Any:
        return _json(self.request("PATCH", *path, body=body))

    def delete(self, *path: str) -> None:
        self.request("DELETE", *path)

    def request(
        self, method: str, *path: str, query: Mapping[str, Query] | None = None, body: Any = None
    ) -> httpx.Response:
        with self._told():
            answer = self._http.request(method, self._address(path), params=_given(query or {}), json=body)
        _check(answer)
        return answer

    @contextmanager
    def stream(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Query] | None = None,
        content: Iterable[bytes] | None = None,
        length: int | None = None,
    ) -> Iterator[httpx.Response]:
        """An answer whose body is read piece by piece, and that may take as long as it takes."""
        headers = {} if length is None else {"Content-Length": str(length)}
        with (
            self._told(),
            self._http.stream(
                method,
                self._address(path),
                params=_given(query or {}),
                content=content,
                headers=headers,
                timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            ) as answer,
        ):
            if not answer.is_success:
                answer.read()
                _check(answer)
            yield answer

    def _address(self, path: Iterable[str]) -> str:
        return "/".join([self._url, "v0", *(quote(part, safe="") for part in path)])

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise CommandError(
                ExitCode.UNREACHABLE,
                f"No service answers at {self._url}: {error}",
                hint="Start one with penstock serve, or name another with --url or PENSTOCK_URL",
            ) from error
        except httpx.TimeoutException as error:
            raise CommandError(
                ExitCode.UNREACHABLE, f"The service at {self._url} does not answer in time"
            ) from error
        except httpx.HTTPError as error:
            raise CommandError(
                ExitCode.UNREACHABLE, f"The connection to {self._url} broke: {error}"
            ) from error


def _hostname(url: str) -> str:
    try:
        found = urlsplit(str(httpx.URL(url)))
        if found.scheme in ("http", "https") and found.hostname:
            return found.hostname
    except (ValueError, httpx.InvalidURL):
        pass
    raise CommandError(ExitCode.USAGE, f"{url!r} is no URL of a service, such as http://127.0.0.1:8080")


def _authorization(api_key: str | None) -> dict[str, str]:
    key = (api_key or "").strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise CommandError(ExitCode.USAGE, "What was given as API key has characters that no key has")
    return {"Authorization": f"Bearer {key}"}


def _given(query: Mapping[str, Query]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }


def _check(answer: httpx.Response) -> None:
    if not answer.is_success:
        try:
            body = answer.json()
        except ValueError:
            body = answer.text
        raise refused(answer.status_code, body)


def _json(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    try:
        return answer.json()
    except ValueError as error:
        raise CommandError(
            ExitCode.UNREACHABLE, f"What answers at {answer.url} is no Penstock service: it sends no JSON"
        ) from error
