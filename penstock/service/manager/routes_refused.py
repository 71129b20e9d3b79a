"""What the reference has and Penstock has not: refused by name, in the one form of errors."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request

from penstock.service.errors import ApiError
from penstock.service.manager.service import service_of

router = APIRouter()

_NO_TENANTS = "Penstock has no tenants and no users: who has an API key may do what its role says"
_NO_OIDC = "Penstock knows API keys only, and trusts no other issuer of tokens"
_NO_PROFILES = "The pipeline runs on Spark: look at /stats and /dataflow_graph, and use Spark's own tools"
_NO_CLOCK = "The clock of NOW() is that of the machine, and is journaled: it cannot be set"
_BY_ITSELF = "Penstock merges and spreads its state by itself"
_ONE_RUNTIME = "Penstock has one version of its runtime, and compiles each program with it when it starts"

REFUSED = (
    ("GET", "/v0/config/owners", _NO_TENANTS),
    ("GET", "/v0/tenants", _NO_TENANTS),
    ("POST", "/v0/tenants", _NO_TENANTS),
    ("GET", "/v0/tenants/{tenant_id}", _NO_TENANTS),
    ("PATCH", "/v0/tenants/{tenant_id}", _NO_TENANTS),
    ("DELETE", "/v0/tenants/{tenant_id}", _NO_TENANTS),
    ("GET", "/v0/tenant/users", _NO_TENANTS),
    ("POST", "/v0/tenant/users", _NO_TENANTS),
    ("PUT", "/v0/tenant/users/{user_id}", _NO_TENANTS),
    ("DELETE", "/v0/tenant/users/{user_id}", _NO_TENANTS),
    ("GET", "/v0/oidc_trust", _NO_OIDC),
    ("POST", "/v0/oidc_trust", _NO_OIDC),
    ("GET", "/v0/oidc_trust/{name}", _NO_OIDC),
    ("DELETE", "/v0/oidc_trust/{name}", _NO_OIDC),
    ("GET", "/v0/pipelines/{pipeline_name}/heap_profile", _NO_PROFILES),
    ("GET", "/v0/pipelines/{pipeline_name}/samply_profile", _NO_PROFILES),
    ("POST", "/v0/pipelines/{pipeline_name}/samply_profile", _NO_PROFILES),
    ("GET", "/v0/pipelines/{pipeline_name}/circuit_profile", _NO_PROFILES),
    ("GET", "/v0/pipelines/{pipeline_name}/circuit_json_profile", _NO_PROFILES),
    ("POST", "/v0/pipelines/{pipeline_name}/clock/advance", _NO_CLOCK),
    ("POST", "/v0/pipelines/{pipeline_name}/start_compaction", _BY_ITSELF),
    ("POST", "/v0/pipelines/{pipeline_name}/rebalance", _BY_ITSELF),
    ("POST", "/v0/pipelines/{pipeline_name}/update_runtime", _ONE_RUNTIME),
)


def _route(why: str) -> Callable[[Request], None]:
    def refuse(request: Request) -> None:
        name = request.path_params.get("pipeline_name")
        if name is not None:
            service_of(request).pipelines.get(name)
        raise ApiError(501, "NotImplemented", why, {"request": f"{request.method} {request.url.path}"})

    return refuse


for _method, _path, _why in REFUSED:
    router.add_api_route(
        _path,
        _route(_why),
        methods=[_method],
        summary="Refused",
        description=_why,
        tags=["Refused"],
        operation_id=f"{_method.lower()}{_path}".replace("/", "_").translate(
            {ord("{"): None, ord("}"): None}
        ),
        openapi_extra={
            "parameters": [
                {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
                for part in _path.split("/")
                if part.startswith("{")
            ]
        },
        status_code=501,
    )
