"""What the manager orders: deploy, pause, approve, stop; and programs to be compiled by a blank runner."""

from __future__ import annotations

import threading
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict

from penstock.service.errors import ApiError, error_body
from penstock.service.runner.compiling import compiled, differing, explained
from penstock.service.runner.deployment import Order
from penstock.service.runner.host import Host
from penstock.service.runner.statistics import resident_bytes

router = APIRouter()


async def host_of(request: Request) -> Host:
    # Not a plain function: that would be called in a thread, for every request.
    host: Host = request.app.state.host
    return host


Hosted = Annotated[Host, Depends(host_of)]


class Deploy(BaseModel):
    model_config = ConfigDict(extra="forbid")

    deployment_id: str
    name: str
    pipeline_id: str = ""
    program_code: str
    runtime_config: dict[str, Any] = {}
    storage: str
    initial: str = "Running"
    bootstrap_policy: str = "allow"
    group: dict[str, Any] | None = None


class Compile(BaseModel):
    program_code: str


class Diff(BaseModel):
    old: str
    new: str


@router.get("/status")
async def status(host: Hosted) -> dict[str, Any]:
    """Asked several times a second; answered at once, however many other requests wait."""
    found = host.deployment
    if found is None:
        return {
            "deployment_id": None,
            "status": "Unavailable",
            "desired": None,
            "details": None,
            "error": None,
            "storage": False,
            "warm": host.is_warm,
            "rss_bytes": resident_bytes(),
        }
    broken = found.broken
    error = found.error or (broken and error_body(found.pipeline.failure_code or "STATE_ERROR", broken, {}))
    return {
        "deployment_id": found.order.deployment_id,
        "status": found.status,
        "desired": found.desired,
        "details": found.details,
        "replica": found.replica,
        "error": error or None,
        "storage": True,
        "warm": host.is_warm,
        "rss_bytes": resident_bytes(),
    }


@router.post("/deploy", status_code=202)
def deploy(order: Deploy, host: Hosted) -> None:
    host.deploy(Order(**order.model_dump()))


@router.post("/compile")
def compile_program(body: Compile, host: Hosted) -> dict[str, Any]:
    host.wait_for_spark()
    return compiled(body.program_code, host.roots)


@router.post("/explain")
def explain(body: Compile, host: Hosted) -> dict[str, Any]:
    host.wait_for_spark()
    return explained(body.program_code)


@router.post("/diff")
def diff(body: Diff, host: Hosted) -> dict[str, Any]:
    host.wait_for_spark()
    return differing(body.old, body.new)


@router.post("/stop", status_code=202)
async def stop(host: Hosted) -> None:
    threading.Thread(target=host.stop, name="penstock stop", daemon=True).start()


@router.post("/pause", status_code=202)
def pause(host: Hosted) -> None:
    host.deployed().pause()


@router.post("/resume", status_code=202)
def resume(host: Hosted, skip_transaction: Annotated[int | None, Query()] = None) -> None:
    host.deployed().resume(skip_transaction)


@router.post("/activate", status_code=202)
def activate(
    host: Hosted, initial: Annotated[str, Query(pattern="^(?i:running|paused)$")] = "running"
) -> None:
    deployment = host.deployed()
    if deployment.status != "Standby":
        raise ApiError(400, "NotStandby", "the pipeline does not stand by, so there is nothing to activate")
    deployment.activate(initial.capitalize())


@router.post("/approve")
def approve(
    host: Hosted,
    silent_bootstrap: Annotated[bool, Query()] = False,
    concurrent_bootstrap: Annotated[bool, Query()] = False,
) -> None:
    if silent_bootstrap or concurrent_bootstrap:
        raise ApiError(501, "NotImplemented", "changed views are filled before the pipeline goes on")
    host.deployed().approve()
