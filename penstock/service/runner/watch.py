"""What the pipeline is doing: statistics, metrics, a short history of them, and how its views are kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from penstock.service.errors import ApiError
from penstock.service.runner.control import Hosted
from penstock.service.runner.host import Host
from penstock.service.runner.metrics import as_prometheus, measured
from penstock.service.runner.statistics import controller_status

router = APIRouter()

_SAMPLE_SECONDS = 1.0


@router.get("/stats")
def stats(host: Hosted) -> dict[str, Any]:
    return controller_status(host.deployed())


@router.get("/metrics")
def metrics(host: Hosted, format: Annotated[str, Query()] = "prometheus") -> Response:
    found = measured(host.deployed())
    if format == "json":
        return JSONResponse([metric.plain() for metric in found])
    if format != "prometheus":
        raise ApiError(400, "InvalidMetricsFormat", f"the format is prometheus or json, not {format!r}")
    return PlainTextResponse(as_prometheus(found), media_type="text/plain; version=0.0.4")


@router.get("/time_series")
def time_series(host: Hosted) -> dict[str, Any]:
    host.deployed()
    samples = [asdict(sample) for sample in host.history.samples()]
    return {"now": datetime.now(UTC).isoformat(), "samples": samples}


@router.get("/time_series_stream")
def time_series_stream(host: Hosted) -> StreamingResponse:
    """The samples that there are, one in each line, and each new one as it is taken."""
    host.deployed()
    return StreamingResponse(_as_taken(host), media_type="application/x-ndjson")


async def _as_taken(host: Host) -> AsyncIterator[bytes]:
    last = ""
    while not host.ended.is_set():
        for sample in host.history.samples():
            if sample.t > last:
                last = sample.t
                yield json.dumps(asdict(sample)).encode() + b"\n"
        await asyncio.sleep(_SAMPLE_SECONDS)
