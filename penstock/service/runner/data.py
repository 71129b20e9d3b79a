"""Rows in, changes out, and queries."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.connectors.output.encode import to_cell, to_json
from penstock.controller.changes import Change, Changes, Slow
from penstock.controller.sent import Sent
from penstock.errors import BadRowError, ConnectorError, EvaluationError, PenstockError, ProgramError
from penstock.pipeline import Pipeline
from penstock.service.errors import ROLE, ApiError, answer_to
from penstock.service.runner.answers import FORMS
from penstock.service.runner.control import Hosted
from penstock.service.runner.host import Host
from penstock.service.runner.threads import Waiting
from penstock.service.runner.tokens import MalformedTokenError, UnknownTokenError
from penstock.service.statements import is_insert

_log = logging.getLogger("penstock")

router = APIRouter()

CHUNK_ROWS = 1_000
_PUSHES = Waiting(64)
_STREAMS = Waiting(1_000)
_HELD_SECONDS = 1.0
_FIRST_LOOK_SECONDS = 0.01
_LOOK_SECONDS = 0.5
"""So long after a client went away its stream ends, if nothing changes."""
_COLUMNS = ("_change_type", "_weight")
_INGRESS = re.compile("/ingress/([^/]+)")
_PLAIN = {
    *(("array", value) for value in ("true", "false")),
    *(("update_format", value) for value in ("raw", "insert_delete")),
    ("format", "json"),
    ("force", "false"),
}


# -- in -------------------------------------------------------------------------------------------


@router.post("/ingress/{table}")
async def ingress(
    request: Request,
    host: Hosted,
    table: str,
    format: Annotated[str, Query()],
    force: Annotated[bool, Query()] = False,
    array: Annotated[bool, Query()] = False,
    update_format: Annotated[str | None, Query()] = None,
    json_flavor: Annotated[str | None, Query()] = None,
    connector_metadata: Annotated[str | None, Query()] = None,
) -> dict[str, Any]:
    if connector_metadata is not None:
        raise ApiError(501, "NotImplemented", "Penstock has no CONNECTOR_METADATA(); leave it out")
    config: dict[str, Any] = {}
    if format == "json":
        config = {"array": array, "update_format": update_format or "insert_delete", "lines": "any"}
        config |= {} if json_flavor is None else {"json_flavor": json_flavor}
    return await _take_in(host, table, request, format, config, force=force)


async def _take_in(
    host: Host, table: str, request: Request, format: str, config: Mapping[str, Any], *, force: bool
) -> dict[str, Any]:
    pipeline = host.pipeline()
    _known(pipeline, table, pipeline.tables, "table")
    if host.deployed().status == "Paused" and not force:
        raise ApiError(
            400,
            "PipelinePaused",
            "the pipeline is paused; resume it, or push with force=true",
        )
    try:
        sent = await _PUSHES.run(pipeline.send, table.strip('"'), await request.body(), format, **config)
    except ConnectorError as error:
        raise ApiError(400, "InvalidFormat", str(error)) from error
    except BadRowError as error:
        raise ApiError(400, "ParseErrors", str(error), {"errors": [str(error)], "num_errors": 1}) from error
    return {"token": host.tokens.give(sent)}


@router.get("/completion_status")
async def completion_status(host: Hosted, token: Annotated[str, Query()]) -> JSONResponse:
    """Answered when it is complete, or after a moment: who asks again and again need not ask so often."""
    try:
        sent = host.tokens.find(token)
    except MalformedTokenError as error:
        raise ApiError(400, "InvalidCompletionToken", f"{token!r} is no completion token") from error
    except UnknownTokenError as error:
        raise ApiError(
            410,
            "CompletionTokenExpired",
            "the pipeline was started again since: whether it has what this token stands for is unknown",
        ) from error
    if await _is_complete(sent):
        step = host.pipeline().last_transaction if sent.transaction is None else sent.transaction
        return JSONResponse({"status": "complete", "step": step})
    return JSONResponse({"status": "inprogress", "step": sent.transaction}, status_code=202)


async def _is_complete(sent: Sent) -> bool:
    end, pause = time.monotonic() + _HELD_SECONDS, _FIRST_LOOK_SECONDS
    while not sent.complete:
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 1.3, _LOOK_SECONDS)
    return True


class Shortcut:
    """What many clients ask many times a second goes past the routing, which takes longer than the rest;
    whatever is unusual about a request is left to it."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._asked(Request(scope, receive)) if scope["type"] == "http" else None
        if asked is None:
            await self._app(scope, receive, send)
            return
        try:
            answer = await asked
        except (ApiError, PenstockError) as error:
            answer = answer_to(error)
        await answer(scope, receive, send)

    def _asked(self, request: Request) -> Awaitable[Response] | None:
        path, query = request.scope["path"], dict(request.query_params)
        if request.method == "GET" and path == "/completion_status" and list(query) == ["token"]:
            return completion_status(self._host, query["token"])
        plain = query.get("format") == "json" and query.items() <= _PLAIN
        if request.method == "POST" and plain and (found := _INGRESS.fullmatch(path)):
            return self._pushed(request, found[1], query)
        return None

    async def _pushed(self, request: Request, table: str, query: dict[str, str]) -> Response:
        config = {
            "array": query.get("array") == "true",
            "update_format": query.get("update_format", "insert_delete"),
            "lines": "any",
        }
        return JSONResponse(await _take_in(self._host, table, request, "json", config, force=False))


# -- out ------------------------------------------------------------------------------------------


@router.post("/egress/{relation}")
async def egress(
    host: Hosted,
    relation: str,
    format: Annotated[str, Query()] = "json",
    send_snapshot: Annotated[bool, Query()] = False,
    backpressure: Annotated[bool, Query()] = True,
) -> StreamingResponse:
    pipeline = host.pipeline()
    name = _known(pipeline, relation, [*pipeline.views, *pipeline.tables], "view")
    if format not in ("json", "csv"):
        raise ApiError(400, "UnknownOutputFormat", f"the format is json or csv, not {format!r}")
    slow = Slow.AWAITED if backpressure else Slow.DROPPED
    changes = await _STREAMS.run(pipeline.changes, name, follow=True, slow=slow, snapshot=send_snapshot)
    chunks = _chunks(changes, format)
    return StreamingResponse(chunks, media_type="application/json")


async def _chunks(changes: Changes, format: str) -> AsyncIterator[bytes]:
    """The changes of each transaction in chunks of rows; the first, empty, tells that the stream is open.

    A chunk with `processed_steps` says that everything up to that transaction came before it.
    """
    number, passed = 0, -1
    yield _chunk(number)
    try:
        while not changes.ended:
            found = await _STREAMS.run(changes.take, _LOOK_SECONDS, passed)
            if isinstance(found, int):
                passed = found
                number += 1
                yield _chunk(number, processed_steps=passed)
            elif found is not None:
                for part in _parts(found):
                    number += 1
                    content = {"json_data": part} if format == "json" else {"text_data": _csv(part)}
                    yield _chunk(number, snapshot=found.snapshot, **content)
        if changes.dropped:
            _log.warning("a reader of %s did not keep up and was left behind", changes.view)
    finally:
        changes.close()


def _chunk(number: int, **content: Any) -> bytes:
    return json.dumps({"sequence_number": number, "snapshot": False, **content}).encode() + b"\n"


def _parts(change: Change) -> Iterator[list[dict[str, Any]]]:
    """Rows as often as they are there, each with what happened to it."""
    table: pa.Table = change.data
    found: list[dict[str, Any]] = []
    for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
        for row in batch.to_pylist():
            plain = {name: to_json(value) for name, value in row.items() if name not in _COLUMNS}
            found += [{row["_change_type"]: plain}] * row["_weight"]
            if len(found) >= CHUNK_ROWS:
                yield found
                found = []
    if found:
        yield found


def _csv(part: list[dict[str, Any]]) -> str:
    lines = []
    for item in part:
        ((kind, row),) = item.items()
        cells = [to_cell(value, ",") for value in row.values()]
        lines.append(",".join([*cells, "1" if kind == "insert" else "-1"]))
    return "\n".join(lines) + "\n"


# -- queries --------------------------------------------------------------------------------------


@router.get("/query")
def query(
    request: Request,
    host: Hosted,
    sql: Annotated[str, Query()] = "",
    format: Annotated[str, Query()] = "text",
) -> StreamingResponse:
    if format not in FORMS:
        raise ApiError(400, "InvalidResultFormat", f"the format is one of {', '.join(FORMS)}, not {format!r}")
    media, made = FORMS[format]
    pipeline = host.pipeline()
    try:
        if is_insert(sql):
            if request.headers.get(ROLE) == "read":
                raise ApiError(
                    403, "InsufficientRole", "The API key has the role 'read'; INSERT needs 'write'"
                )
            sent = pipeline.send_insert(sql)
            sent.wait()
            answer = pa.table({"count": [sent.rows]})
        else:
            answer = pipeline.query(sql)
    except (EvaluationError, ProgramError, BadRowError) as error:
        raise ApiError(400, "AdHocQueryError", str(error), {"error": str(error)}) from error
    return StreamingResponse(made(answer), media_type=media)


def _known(pipeline: Pipeline, given: str, names: list[str], kind: str) -> str:
    """The name as it was declared."""
    wanted = given.strip('"').lower()
    found = next((name for name in names if name.lower() == wanted), None)
    if found is None:
        code = "UnknownInputStream" if kind == "table" else "UnknownOutputStream"
        raise ApiError(
            404,
            code,
            f"there is no {kind} {given} in pipeline {pipeline.name}; there are: {', '.join(names)}",
            {"stream_name": given},
        )
    return found
