"""Requests about a pipeline that runs: each is declared here, and answered by the pipeline's runner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from penstock.service.errors import ApiError
from penstock.service.manager.service import Service, service_of

router = APIRouter()

_PREFIX = "/v0/pipelines/{pipeline_name}"


@dataclass(frozen=True)
class Passed:
    """A route that is passed on: its method, its path below the pipeline, and what may be in its query."""

    method: str
    path: str
    what: str
    query: tuple[str, ...] = ()
    has_body: bool = False
    status: int = 200
    others: Mapping[int, str] = field(default_factory=dict)
    """Other answers than that status and errors."""


PASSED = (
    Passed("POST", "/pause", "Take in nothing more", status=202),
    Passed("POST", "/resume", "Take in again", ("skip_transaction",), status=202),
    Passed("POST", "/activate", "Have a standby go on", ("initial",), status=202),
    Passed("POST", "/approve", "Fill the changed views", ("silent_bootstrap", "concurrent_bootstrap")),
    Passed("POST", "/checkpoint", "Take a checkpoint", ("name",)),
    Passed("GET", "/checkpoint_status", "How a checkpoint that was asked for went", ("incarnation_uuid",)),
    Passed("GET", "/checkpoints", "The checkpoints that are kept"),
    Passed("POST", "/checkpoint/sync", "Copy the newest checkpoint to the object store", status=202),
    Passed("GET", "/checkpoint/sync_status", "How such a copy went", ("incarnation_uuid",)),
    Passed("GET", "/checkpoints/remote", "The checkpoints in the object store"),
    Passed("POST", "/start_transaction", "Open a transaction"),
    Passed("POST", "/commit_transaction", "Commit the open transaction"),
    Passed("POST", "/rollback_transaction", "Give up the open transaction"),
    Passed(
        "POST",
        "/ingress/{table_name}",
        "Push rows into a table",
        ("force", "format", "array", "update_format", "json_flavor"),
        has_body=True,
    ),
    Passed(
        "POST",
        "/egress/{table_name}",
        "Follow the changes of a table or view",
        ("format", "send_snapshot", "array", "backpressure"),
        has_body=True,
    ),
    Passed("GET", "/query", "Ask with SQL", ("sql", "format")),
    Passed(
        "GET",
        "/completion_status",
        "Whether what a token stands for is processed",
        ("token",),
        others={202: "Not yet", 410: "The pipeline was started again since"},
    ),
    Passed("GET", "/stats", "How it goes"),
    Passed("GET", "/metrics", "Figures for Prometheus", ("format",)),
    Passed("GET", "/time_series", "How it went lately"),
    Passed("GET", "/time_series_stream", "How it went lately, and how it goes on"),
    Passed(
        "GET",
        "/tables/{table_name}/connectors/{connector_name}/completion_token",
        "A token for what was read",
    ),
    Passed("GET", "/tables/{table_name}/connectors/{connector_name}/stats", "How an input goes"),
    Passed("POST", "/tables/{table_name}/connectors/{connector_name}/{action}", "Start or pause an input"),
    Passed("GET", "/views/{view_name}/connectors/{connector_name}/stats", "How an output goes"),
)

_STATES = ("/pause", "/resume", "/activate", "/approve")
"""After these the pipeline's status is looked at at once."""


def _skipped(request: Request) -> int | None:
    """The transaction that a request asks to skip."""
    given = request.query_params.get("skip_transaction")
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        text = (
            "Invalid request: skip_transaction is no number; the pipeline's error names what can be skipped"
        )
        raise ApiError(400, "InvalidRequestParameter", text, {"skip_transaction": given[:40]})
    return int(given)


def _pause_others(service: Service, request: Request, _path: str) -> None:
    service.replicas.paused(request.path_params["pipeline_name"])


def _resume_others(service: Service, request: Request, _path: str) -> None:
    skipped = _skipped(request) is not None
    service.replicas.resumed(request.path_params["pipeline_name"], skipped=skipped)


def _act_on_others(service: Service, request: Request, path: str) -> None:
    service.replicas.tell_others(request.path_params["pipeline_name"], path)


_CONNECTOR = "/tables/{table_name}/connectors/{connector_name}/{action}"
_OF_ALL_REPLICAS = {"/pause": _pause_others, "/resume": _resume_others, _CONNECTOR: _act_on_others}
"""What the other replicas of a pipeline are told, too, when the one that requests go to has taken it."""


def _route(passed: Passed) -> Callable[[Request], Awaitable[Response]]:
    async def pass_on(request: Request) -> Response:
        service = service_of(request)
        if "skip_transaction" in passed.query:
            _skipped(request)  # before anybody acts on it
        names = {name: quote(value, safe="") for name, value in request.path_params.items()}
        path = passed.path.format(**names)
        answer = await service.proxy.pass_on(request, request.path_params["pipeline_name"], path)
        if passed.path in _OF_ALL_REPLICAS and answer.status_code < 400:
            await run_in_threadpool(_OF_ALL_REPLICAS[passed.path], service, request, path)
        if passed.path in _STATES:
            service.supervisor.wake()
        return answer

    return pass_on


def _described(passed: Passed) -> dict[str, Any]:
    names = [part[1:-1] for part in (_PREFIX + passed.path).split("/") if part.startswith("{")]
    described: dict[str, Any] = {
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *({"name": name, "in": "query", "schema": {"type": "string"}} for name in passed.query),
        ]
    }
    if passed.has_body:
        described["requestBody"] = {"content": {"*/*": {}}}
    return described


for _passed in PASSED:
    router.add_api_route(
        _PREFIX + _passed.path,
        _route(_passed),
        methods=[_passed.method],
        summary=_passed.what,
        tags=["Running pipelines"],
        operation_id=f"{_passed.method.lower()}{_passed.path}".replace("/", "_").translate(
            {ord("{"): None, ord("}"): None}
        ),
        openapi_extra=_described(_passed),
        status_code=_passed.status,
        responses={status: {"description": what} for status, what in _passed.others.items()},
    )
