"""The service itself: its configuration, its health, its figures, and who may ask."""

from __future__ import annotations

import asyncio
import platform
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from penstock._version import __version__
from penstock.service.errors import ApiError
from penstock.service.manager.answers import EventSelector
from penstock.service.manager.bodies import NewApiKey, checked_name
from penstock.service.manager.metrics import MEDIA_TYPE, manager_metrics, merged
from penstock.service.manager.service import Service, service_of
from penstock.service.statuses import ResourcesStatus

router = APIRouter()

Served = Annotated[Service, Depends(service_of)]
Selected = Annotated[EventSelector, Query()]

EDITION = "Enterprise"
"""Clients know it as the edition that has all features."""

TENANT = "00000000-0000-0000-0000-000000000000"


@router.get("/healthz", tags=["Service"])
def healthz() -> dict[str, str]:
    """The service answers."""
    return {"status": "ok"}


@router.get("/readyz", tags=["Service"], responses={503: {"description": "Not ready"}})
def readyz(service: Served) -> Response:
    """The service answers, and looks after its pipelines."""
    ready = service.supervisor.is_healthy
    return JSONResponse({"status": "ready" if ready else "not ready"}, status_code=200 if ready else 503)


@router.get("/config/authentication", tags=["Service"])
def authentication() -> dict[str, Any]:
    """No provider of logins: there are API keys, or nothing."""
    return {}


@router.get("/v0/config", tags=["Service"])
def configuration() -> dict[str, Any]:
    """What this service is."""
    return {
        "edition": EDITION,
        "version": __version__,
        "revision": __version__,
        "runtime_revision": __version__,
        "build_source": "source",
        "changelog_url": "",
        "posthog": "",
        "product_fruits": "",
        "conceptualhq": "",
        "license_validity": None,
        "unstable_features": None,
        "update_info": None,
        "build_info": {
            "build_timestamp": "",
            "build_cpu": platform.machine(),
            "build_os": platform.system(),
            "cargo_debug": "",
            "cargo_dependencies": "",
            "cargo_features": "",
            "cargo_opt_level": "",
            "cargo_target_triple": "",
            "rustc_version": "",
        },
    }


@router.get("/v0/config/demos", tags=["Service"])
def demos() -> list[Any]:
    """There are none."""
    return []


@router.get("/v0/config/session", tags=["Service"])
def session(request: Request) -> dict[str, Any]:
    """Who asks."""
    return {
        "tenant_id": TENANT,
        "tenant_name": "default",
        "role": getattr(request.state, "role", "write"),
        "memberships": [],
    }


@router.get(
    "/v0/cluster_healthz", tags=["Service"], responses={503: {"description": "Not all of it is healthy"}}
)
def cluster_healthz(service: Served) -> Response:
    """How the parts of the service are."""
    found = service.health.now()
    return JSONResponse(found, status_code=200 if found["all_healthy"] else 503)


@router.get("/v0/cluster/events", tags=["Service"])
def cluster_events(service: Served) -> list[dict[str, Any]]:
    """When the health of the service changed, the latest first."""
    return service.health.events("status")


@router.get("/v0/cluster/events/{event_id}", tags=["Service"])
def cluster_event(
    service: Served, event_id: str, selector: Selected = EventSelector.STATUS
) -> dict[str, Any]:
    """One such change, or the latest."""
    return service.health.event(event_id, selector)


@router.get("/v0/metrics", tags=["Service"], responses={200: {"content": {MEDIA_TYPE: {}}}})
async def metrics(service: Served) -> Response:
    """Figures of the manager and of every pipeline that runs and answers."""
    rows = await run_in_threadpool(service.pipelines.all)
    running = [
        row["name"] for row in rows if row["deployment_resources_status"] == ResourcesStatus.PROVISIONED
    ]
    own = await run_in_threadpool(manager_metrics, service)
    parts = await asyncio.gather(*(_metrics_of(service, name) for name in running))
    return Response(merged([own, *parts]), media_type=MEDIA_TYPE)


async def _metrics_of(service: Service, name: str) -> str:
    try:
        return await service.proxy.text(name, "/metrics")
    except ApiError:
        return ""


@router.get("/v0/api_keys", tags=["API keys"])
def list_keys(service: Served) -> list[dict[str, Any]]:
    """The keys, without the keys themselves."""
    return service.keys.all()


@router.post("/v0/api_keys", status_code=201, tags=["API keys"])
def post_key(service: Served, body: NewApiKey) -> dict[str, Any]:
    """Make a key. It is shown now and never again."""
    return service.keys.create(checked_name(body.name), body.role)


@router.get("/v0/api_keys/{api_key_name}", tags=["API keys"])
def get_key(service: Served, api_key_name: str) -> dict[str, Any]:
    """One key, without the key itself."""
    return service.keys.get(api_key_name)


@router.delete("/v0/api_keys/{api_key_name}", tags=["API keys"])
def delete_key(service: Served, api_key_name: str) -> Response:
    """Take a key back."""
    service.keys.delete(api_key_name)
    return Response(status_code=200)
