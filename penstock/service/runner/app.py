"""The HTTP application of a runner: it needs the manager's token, and is proxied by the manager."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncIterator

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.service.errors import ApiError, install_handlers
from penstock.service.runner import control, data, state, watch
from penstock.service.runner.host import Host
from penstock.service.runner.threads import allow_many


@contextlib.asynccontextmanager
async def _lifespan(_app: FastAPI) -> AsyncIterator[None]:
    allow_many()
    yield


def create_app(host: Host, token: str) -> FastAPI:
    """The application for what this process hosts."""
    app = FastAPI(
        title="Penstock runner", openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan
    )
    app.state.host = host
    install_handlers(app)
    app.add_middleware(data.Shortcut, host=host)
    app.add_middleware(Authorised, token=token)
    for routes in (control.router, data.router, state.router, watch.router):
        app.include_router(routes)
    return app


class Authorised:
    """Lets nobody in but the manager: other users of this machine reach the port too."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode()
            if not hmac.compare_digest(given, self._expected):
                await ApiError(401, "Unauthorized", "this is not your runner").answer()(scope, receive, send)
                return
        await self._app(scope, receive, send)
