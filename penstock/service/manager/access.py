"""Who may ask: everyone on this machine, or those who have a key. And how much they may send."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.service.errors import ApiError
from penstock.service.manager.keys import ApiKeys
from penstock.service.manager.settings import Settings, is_loopback

OPEN = ("/config/authentication", "/healthz", "/readyz")
"""Paths that are answered without a key."""

_READS = ("GET", "HEAD", "OPTIONS")
_EGRESS = re.compile(r"/v0/pipelines/[^/]+/egress/[^/]+")
_INGRESS = re.compile(r"/v0/pipelines/[^/]+/ingress/[^/]+")
_WRITE_BY_GET = ("/v0/api_keys",)


class Access:
    """Looked at before anything else of a request."""

    def __init__(self, app: ASGIApp, settings: Settings, keys: ApiKeys) -> None:
        self._app = app
        self._needs_keys = settings.needs_keys
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            if self._needs_keys:
                await self._check_key(request)
            else:
                _check_local(request)
        except ApiError as error:
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            await error.answer(headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _check_key(self, request: Request) -> None:
        path = request.scope["path"]
        if path in OPEN:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise ApiError(
                401, "MissingCredentials", "This service wants an API key: 'Authorization: Bearer apikey:...'"
            )
        role = await run_in_threadpool(self._keys.role_of, key.strip())
        if role is None:
            raise ApiError(401, "InvalidApiKey", "The API key is not known to this service")
        if role != "write" and needs_write(request.method, path):
            raise ApiError(
                403,
                "InsufficientRole",
                "The API key has the role 'read', and this request needs 'write'",
                {"role": role, "required": "write"},
            )
        request.state.role = role


def needs_write(method: str, path: str) -> bool:
    """Whether a request changes anything, or tells of who may."""
    if path.startswith(_WRITE_BY_GET):
        return True
    return method not in _READS and not (method == "POST" and _EGRESS.fullmatch(path))


def _check_local(request: Request) -> None:
    """Without keys, a web page that the user visits must not reach the service through the user's browser."""
    host = _hostname("//" + request.headers.get("host", ""))
    if host is None or not is_loopback(host):
        raise ApiError(
            403,
            "ForeignHost",
            f"Without API keys only this machine may ask, by its own name, not as {host!r}",
        )
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise ApiError(403, "ForeignOrigin", "Pages of other sites may not use a service without API keys")
    origin = request.headers.get("origin")
    if origin is not None and not is_loopback(_hostname(origin) or ""):
        raise ApiError(403, "ForeignOrigin", f"Pages of {origin} may not use a service without API keys")


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


class BodyLimit:
    """Cuts off bodies that are too long, also those that do not say how long they are."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_ingress = _INGRESS.fullmatch(scope["path"])
        limit = self._settings.max_ingress_bytes if is_ingress else self._settings.max_request_bytes
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit():
            refused = ApiError(400, "InvalidRequestHeader", "Content-Length is no number")
            await refused.answer({"Connection": "close"})(scope, receive, send)
            return
        if int(length) > limit:
            await too_large(limit).answer({"Connection": "close"})(scope, receive, send)
            return
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, f"The body has more than {limit} bytes")
            return message

        await self._app(scope, limited, send)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "PayloadTooLarge", f"The body has more than {limit} bytes", {"limit": limit})
