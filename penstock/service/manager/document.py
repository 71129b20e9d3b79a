"""The OpenAPI document that the service serves: its routes, and the one form of errors."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Information returned by REST API endpoints on error.",
    "required": ["message", "error_code", "details"],
    "properties": {
        "message": {"type": "string", "description": "What happened, for people."},
        "error_code": {"type": "string", "description": "What happened, for programs."},
        "details": {"description": "More about it; what depends on the code."},
    },
}
_ERRORS = {
    "400": "The request is wrong, or not possible now",
    "401": "No API key, or none that is known",
    "403": "The API key may not do this",
    "404": "There is no such thing",
    "405": "Not possible for this pipeline",
    "409": "It is there already",
    "413": "The body is too long",
    "500": "A mistake of the service",
    "501": "Penstock does not have this",
    "503": "The pipeline does not run, or does not answer",
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Made once: the routes do not change."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for operations in found["paths"].values():
            for operation in operations.values():
                _add_errors(operation)
        schemas = found["components"]["schemas"]
        schemas["ErrorResponse"] = _ERROR_SCHEMA
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        found["components"]["securitySchemes"] = {"api_key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{}, {"api_key": []}]
        app.openapi_schema = found
    return app.openapi_schema


def _add_errors(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
    for status, description in _ERRORS.items():
        if status not in responses or status == "501":
            responses[status] = {"description": description, "content": content}
        else:
            responses[status].setdefault("content", content)
