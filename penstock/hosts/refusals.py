"""Every refusal over HTTP in the form that the service has: `{"message", "error_code", "details"}`."""

from __future__ import annotations

import hmac
import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from penstock.errors import DamagedError, HostError, StateError, StorageError, SyncError

_log = logging.getLogger("penstock")


class RefusalError(HostError):
    """What was asked for is refused: the status of the answer, a stable name, a text for people."""

    def __init__(
        self, status: int, name: str, message: str, details: Any = None, *, host: int | None = None
    ) -> None:
        super().__init__(message, host=host)
        self.status = status
        self.name = name
        self.details = details

    def answer(self) -> Response:
        return answer(self.status, self.name, str(self), self.details)


def answer(status: int, name: str, message: str, details: Any = None) -> Response:
    """An answer that says what is wrong."""
    return JSONResponse({"message": message, "error_code": name, "details": details}, status_code=status)


def knows(headers: Headers, secret: str) -> bool:
    """Whether a request carries `Authorization: Bearer <secret>`; how long it takes to see tells nothing."""
    return hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {secret}".encode())


def install_handlers(app: FastAPI, who: str) -> None:
    """Give every error of an application that form; `who` answers."""

    def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusalError)
        return error.answer()

    def wrong(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HostError)
        return answer(400, error.code, str(error))

    def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()
        )
        return answer(400, "InvalidRequest", f"invalid request: {found}")

    def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(error.status_code, "HttpError", f"{error.detail}: {request.method} {request.url.path}")

    def damaged(_request: Request, error: Exception) -> Response:
        assert isinstance(error, StorageError)
        faults = list(error.faults) if isinstance(error, DamagedError) else []
        return answer(500, error.code, f"{who}: {error}", {"faults": faults})

    def sync(_request: Request, error: Exception) -> Response:
        assert isinstance(error, SyncError)
        where = {name: getattr(error, name) for name in ("bucket", "key", "status", "passing")}
        return answer(502, error.code, f"{who}: {error}", where)

    def state(_request: Request, error: Exception) -> Response:
        assert isinstance(error, StateError)
        return answer(409, error.code, f"{who}: {error}")

    def disk(_request: Request, error: Exception) -> Response:
        assert isinstance(error, OSError)
        where = f"{error.filename}: " if error.filename else ""
        return answer(500, StorageError.code, f"{who}: {where}{error.strerror or error}")

    def unexpected(request: Request, error: Exception) -> Response:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(500, "InternalError", f"{who}: something went wrong; the log there says what")

    app.add_exception_handler(RefusalError, refused)
    app.add_exception_handler(HostError, wrong)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(StorageError, damaged)
    app.add_exception_handler(SyncError, sync)
    app.add_exception_handler(StateError, state)
    app.add_exception_handler(OSError, disk)
    app.add_exception_handler(Exception, unexpected)
