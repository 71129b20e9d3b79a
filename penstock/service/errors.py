"""Every refusal of the service in one form: `{"message", "error_code", "details"}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.errors import PenstockError
from penstock.references import redacted, redacted_in

_log = logging.getLogger("penstock")

ROLE = "penstock-role"
"""The header in which the manager tells a runner what the one who asks may do: `read` or `write`."""

_CODES = {404: "NotFound", 405: "MethodNotAllowed", 413: "PayloadTooLarge"}


class ApiError(Exception):
    """A refusal: the status of the answer, a stable code, a text for people, and details for programs."""

    def __init__(self, status: int, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        return error_body(self.code, self.message, self.details)

    def answer(self, headers: Mapping[str, str] | None = None) -> Response:
        return JSONResponse(self.body(), status_code=self.status, headers=dict(headers or {}))


class CutOffError(Exception):
    """A runner died in the middle of an answer. Raised so that the client's connection is cut off too: it
    must not take a part for the whole."""


def error_body(code: str, message: str, details: Any = None) -> dict[str, Any]:
    """What the reference calls an ErrorResponse, without any secret that was resolved here."""
    return {"message": redacted(message), "error_code": code, "details": redacted_in(details)}


def install_handlers(app: FastAPI) -> None:
    """Give every error of this application the one form."""
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(PenstockError, _refused)
    app.add_exception_handler(Exception, _unexpected)


def answer_to(error: ApiError | PenstockError) -> Response:
    refusal = error if isinstance(error, ApiError) else ApiError(400, error.code, str(error))
    return refusal.answer()


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError | PenstockError)
    return answer_to(error)


def _invalid_request(_request: Request, error: Exception) -> Response:
    """What FastAPI answers with 422 is 400 in the reference: the body, the path or the query is wrong."""
    assert isinstance(error, RequestValidationError)
    found = [_problem(problem) for problem in error.errors()]
    in_body = any(problem["in"] == "body" for problem in found)
    text = "; ".join(
        f"{problem['field']}: {problem['problem']}" if problem["field"] else problem["problem"]
        for problem in found
    )
    code = "InvalidRequestBody" if in_body else "InvalidRequestParameter"
    return ApiError(400, code, f"Invalid request: {text}", {"problems": found}).answer()


def _problem(problem: Mapping[str, Any]) -> dict[str, str]:
    """One thing that is wrong: where, and what. The value itself is left out: it may be a secret."""
    where, *path = problem["loc"]
    if problem["type"] == "json_invalid":
        reason = problem.get("ctx", {}).get("error", "")
        return {"in": str(where), "field": "", "problem": f"the body is not JSON: {reason} at {path[-1]}"}
    return {"in": str(where), "field": ".".join(str(part) for part in path), "problem": str(problem["msg"])}


def http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "HttpError")
    message = f"{error.detail}: {request.method} {request.url.path}"
    details = {"method": request.method, "path": request.url.path}
    return ApiError(error.status_code, code, message, details).answer(error.headers)


def _unexpected(request: Request, error: Exception) -> Response:
    """A mistake of ours: the log has it all, the answer only that it happened."""
    if not isinstance(error, CutOffError):
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ApiError(
        500, "InternalServerError", "Something went wrong in the service; its log says what."
    ).answer()
