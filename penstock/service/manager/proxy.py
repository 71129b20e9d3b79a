"""Requests about a running pipeline are passed on to its runner: bodies and answers as streams, both ways."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from penstock.service.errors import ROLE, ApiError, CutOffError, http_error
from penstock.service.manager.answers import status
from penstock.service.manager.pipelines import Pipelines, Row
from penstock.service.manager.runner_client import authorization
from penstock.service.manager.runners import Endpoint, Runners
from penstock.service.statements import is_insert
from penstock.service.statuses import ResourcesStatus, RuntimeStatus

_log = logging.getLogger("penstock.manager")

_CONNECT_SECONDS = 5.0
_KEPT_SECONDS = 60.0
"""So long a connection to a runner is kept; runners keep them longer."""
_WHOLE_BYTES = 1 << 20
"""What is not longer is passed on at once, not as a stream."""
_REMEMBERED = 1000
_NOT_PASSED_ON = {
    "host",
    "authorization",
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "cookie",
    ROLE,
}
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_NEVER = re.compile("(?!)")
_OFTEN = {
    "POST": re.compile("/v0/pipelines/(?P<name>[^/]+)/(?P<path>ingress/[^/]+)"),
    "GET": re.compile("/v0/pipelines/(?P<name>[^/]+)/(?P<path>completion_status|query|stats)"),
}
_GONE = (
    "the pipeline disconnected while it was processing this HTTP request. This could be because the pipeline"
    " either (a) encountered a fatal error or panic, (b) was stopped, or (c) experienced network issues --"
    " retrying might help in the last case. Alternatively, check the pipeline logs."
)
_UNAVAILABLE = (
    "deployment status is currently 'unavailable' -- wait for it to become 'running' or 'paused' again"
)


class Proxy:
    """Knows which runner a pipeline has, and speaks to it."""

    def __init__(self, pipelines: Pipelines, runners: Runners) -> None:
        self._pipelines = pipelines
        self._runners = runners
        self._endpoints: dict[str, Endpoint] = {}
        self._session: aiohttp.ClientSession | None = None

    async def pass_on(self, request: Request, name: str, path: str) -> Response:
        """The runner's answer to the same request, with this path."""
        row, endpoint = await self._locate(name, path)
        body = _Body(request)
        try:
            answer = await self._http.request(
                request.method,
                URL(f"{endpoint.url}{path}?{_query(request)}", encoded=True),
                headers=_passed_on(request.headers) | authorization(endpoint) | _role(request),
                data=await body.content(),
                allow_redirects=False,
            )
        except ClientDisconnect:
            return Response(status_code=499)
        except aiohttp.ClientError as error:
            if isinstance(body.failure, ClientDisconnect):
                return Response(status_code=499)
            if body.failure is not None:
                raise body.failure from error
            raise _lost(request, row, path, sent=not isinstance(error, _NOT_SENT)) from error
        headers = _passed_on(answer.headers)
        if (answer.content_length or _WHOLE_BYTES) >= _WHOLE_BYTES:
            return StreamingResponse(_stream(answer), answer.status, headers)
        try:
            content = b"".join([chunk async for chunk in _stream(answer)])
        except CutOffError as error:
            raise _lost(request, row, path, sent=True) from error
        return Response(content, answer.status, headers)

    async def text(self, name: str, path: str) -> str:
        """An answer of the runner, whole; nothing if it refuses."""
        row, endpoint = await self._locate(name, path)
        timeout = aiohttp.ClientTimeout(total=_CONNECT_SECONDS)
        try:
            async with self._http.get(
                endpoint.url + path, headers=authorization(endpoint), timeout=timeout
            ) as answer:
                return await answer.text() if answer.ok else ""
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unreachable(row, path, _GONE) from error

    @property
    def _http(self) -> aiohttp.ClientSession:
        """Made in the event loop that uses it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                # A query or a stream of changes takes as long as it takes.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
            )
            # It would send a GET again by itself, and a query may be an INSERT.
            self._session._retry_connection = False
        return self._session

    async def _locate(self, name: str, path: str) -> tuple[Row, Endpoint]:
        """Where the runner of a pipeline is; refused if it has none that answers."""
        row = self._pipelines.remembered_place(name)
        if row is None or row["runner_id"] not in self._endpoints:
            return await run_in_threadpool(self._found, name, path)
        return self._checked(row, path)

    def _found(self, name: str, path: str) -> tuple[Row, Endpoint]:
        return self._checked(self._pipelines.place(name), path)

    def _checked(self, row: Row, path: str) -> tuple[Row, Endpoint]:
        if row["deployment_resources_status"] != ResourcesStatus.PROVISIONED:
            raise not_deployed(row)
        if row["deployment_runtime_status"] == RuntimeStatus.UNAVAILABLE:
            raise unreachable(row, path, _UNAVAILABLE)
        endpoint = self._endpoint(row["runner_id"])
        if endpoint is None:
            raise unreachable(row, path, _GONE)
        return row, endpoint

    def _endpoint(self, runner_id: str) -> Endpoint | None:
        """Where a runner listens never changes, so it is looked up once."""
        found = self._endpoints.get(runner_id)
        if found is None:
            runner = self._runners.get(runner_id)
            found = None if runner is None else runner.endpoint()
            if found is not None:
                if len(self._endpoints) >= _REMEMBERED:
                    self._endpoints.clear()
                self._endpoints[runner_id] = found
        return found

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class Shortcut:
    """What many clients ask many times a second goes past the routing, which takes longer than the rest."""

    def __init__(self, app: ASGIApp, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = (
            _OFTEN.get(scope.get("method", ""), _NEVER).fullmatch(scope["path"]) if "path" in scope else None
        )
        if found is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = "/" + "/".join(quote(part, safe="") for part in found["path"].split("/"))
        try:
            answer = await self._proxy.pass_on(request, found["name"], path)
        except ApiError as error:
            answer = error.answer()
        except HTTPException as error:
            answer = http_error(request, error)
        await answer(scope, receive, send)


class _Body:
    """What a client sends, and what went wrong with it meanwhile."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.failure: Exception | None = None

    async def content(self) -> bytes | AsyncIterator[bytes] | None:
        headers = self._request.headers
        if "content-length" in headers and int(headers["content-length"]) < _WHOLE_BYTES:
            return await self._request.body()
        return self._stream() if "content-length" in headers or "transfer-encoding" in headers else None

    async def _stream(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._request.stream():
                yield chunk
        except Exception as error:
            self.failure = error
            raise


def not_deployed(row: Row) -> ApiError:
    return ApiError(
        503,
        "PipelineInteractionNotDeployed",
        f"Unable to interact with pipeline because the deployment status ({status(row).lower()}) indicates it"
        f' is not (yet) fully provisioned pipeline-id={row["id"]} pipeline-name="{row["name"]}"',
        {
            "pipeline_name": row["name"],
            "status": row["deployment_resources_status"],
            "desired_status": row["deployment_resources_desired_status"],
        },
    )


def unreachable(row: Row, path: str, why: str) -> ApiError:
    return ApiError(
        503,
        "PipelineInteractionUnreachable",
        f"Error sending HTTP request to pipeline: {why} Failed request: {path} pipeline-id={row['id']}"
        f' pipeline-name="{row["name"]}"',
        {"pipeline_name": row["name"], "request": path, "error": why},
    )


def cut_off(row: Row, path: str) -> ApiError:
    """For rows that may or may not be in. Not 503: clients take that for an invitation to send them again."""
    return ApiError(
        500,
        "PipelineInteractionCutOff",
        "The pipeline ended while it took these rows, and whether it has them is unknown. Rows of a table"
        " with a primary key can be sent again as they are; for others, look first whether they are there."
        f' Failed request: {path} pipeline-id={row["id"]} pipeline-name="{row["name"]}"',
        {"pipeline_name": row["name"], "request": path},
    )


def _lost(request: Request, row: Row, path: str, *, sent: bool) -> ApiError:
    """The runner is gone before its answer came."""
    return cut_off(row, path) if sent and _adds_rows(request, path) else unreachable(row, path, _GONE)


def _query(request: Request) -> str:
    """What follows the question mark, byte by byte as it came."""
    raw: bytes = request.scope["query_string"]
    return "".join(chr(byte) if byte < 128 else f"%{byte:02X}" for byte in raw)


def _adds_rows(request: Request, path: str) -> bool:
    return path.startswith("/ingress/") or (
        path == "/query" and is_insert(request.query_params.get("sql", ""))
    )


def _role(request: Request) -> dict[str, str]:
    """What the one who asks may do; who needs no key may do everything."""
    return {ROLE: getattr(request.state, "role", "write")}


def _passed_on(headers: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}


def is_unexpected(record: logging.LogRecord) -> bool:
    """A filter for the server's log: what was cut off is no mistake of ours."""
    return record.exc_info is None or not isinstance(record.exc_info[1], CutOffError)


async def _stream(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The bytes as they come."""
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        _log.warning("an answer of %s was cut off: %s", answer.url.path, error)
        raise CutOffError from error
    finally:
        if answer.content.at_eof():
            answer.release()
        else:
            answer.close()
