"""The route of the support bundle, whose many switches say what is in it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from penstock.service.manager.bundle import support_bundle
from penstock.service.manager.service import Service, service_of

router = APIRouter()


class Parts:
    """What the bundle is to have; all of it unless told otherwise."""

    def __init__(
        self,
        metrics: bool = True,
        logs: bool = True,
        stats: bool = True,
        pipeline_config: bool = True,
        system_config: bool = True,
        dataflow_graph: bool = True,
        pipeline_events: bool = True,
        circuit_profile: bool = True,  # the reference has it, and there is none
        heap_profile: bool = True,  # nor this
        collect: bool = True,  # what is now is always collected
        limit: int | None = None,  # there is one collection
    ) -> None:
        self.wanted: dict[str, bool] = {
            "metrics": metrics,
            "logs": logs,
            "stats": stats,
            "pipeline_config": pipeline_config,
            "system_config": system_config,
            "dataflow_graph": dataflow_graph,
            "pipeline_events": pipeline_events,
        }


_ANSWERS: dict[int | str, dict[str, Any]] = {200: {"content": {"application/zip": {}}}}


@router.get("/v0/pipelines/{pipeline_name}/support_bundle", tags=["Monitoring"], responses=_ANSWERS)
def get_support_bundle(
    service: Annotated[Service, Depends(service_of)], pipeline_name: str, parts: Annotated[Parts, Depends()]
) -> Response:
    """What a maintainer needs to know of a pipeline, and no secret."""
    content = support_bundle(service, pipeline_name, parts.wanted)
    name = f"{pipeline_name}-support-bundle.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/zip", headers=headers)
