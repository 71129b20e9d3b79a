"""Pipelines: made, looked at, changed, deleted; and what is wanted of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from penstock.service.errors import ApiError
from penstock.service.manager import actions
from penstock.service.manager.answers import EventSelector, Selector, told
from penstock.service.manager.bodies import (
    DiffPipeline,
    PatchPipeline,
    PostPutPipeline,
    ValidateProgram,
)
from penstock.service.manager.events import event, events
from penstock.service.manager.pipelines import Row
from penstock.service.manager.service import Service, service_of
from penstock.service.statuses import BootstrapPolicy, ProgramStatus

router = APIRouter(prefix="/v0")

Served = Annotated[Service, Depends(service_of)]
Selected = Annotated[Selector, Query()]
SelectedOfEvent = Annotated[EventSelector, Query()]


@router.get("/pipelines", tags=["Pipelines"])
def list_pipelines(service: Served, selector: Selected = Selector.ALL) -> list[dict[str, Any]]:
    """All pipelines."""
    return [told(row, selector) for row in service.pipelines.all()]


@router.post("/pipelines", status_code=201, tags=["Pipelines"])
def post_pipeline(service: Served, body: PostPutPipeline) -> dict[str, Any]:
    """Make a pipeline; its program is compiled soon."""
    row = service.pipelines.create(body.fields())
    service.supervisor.wake()
    return told(row)


@router.get("/pipelines/{pipeline_name}", tags=["Pipelines"])
def get_pipeline(service: Served, pipeline_name: str, selector: Selected = Selector.ALL) -> dict[str, Any]:
    """One pipeline."""
    return told(service.pipelines.get(pipeline_name), selector)


@router.put(
    "/pipelines/{pipeline_name}",
    tags=["Pipelines"],
    responses={201: {"description": "The pipeline was made"}},
)
def put_pipeline(
    service: Served, pipeline_name: str, body: PostPutPipeline, response: Response
) -> dict[str, Any]:
    """Change all of a pipeline, or make it."""
    row, made = service.pipelines.put(pipeline_name, body.fields())
    response.status_code = 201 if made else 200
    service.supervisor.wake()
    return told(row)


@router.patch("/pipelines/{pipeline_name}", tags=["Pipelines"])
def patch_pipeline(service: Served, pipeline_name: str, body: PatchPipeline) -> dict[str, Any]:
    """Change some fields of a pipeline."""
    row = service.pipelines.edit(pipeline_name, body.fields())
    service.supervisor.wake()
    return told(row)


@router.delete("/pipelines/{pipeline_name}", tags=["Pipelines"])
def delete_pipeline(service: Served, pipeline_name: str) -> Response:
    """Delete a pipeline that is stopped and whose storage is cleared."""
    row = service.pipelines.delete(pipeline_name)
    service.logs.remove(row["id"])
    return Response(status_code=200)


@router.post("/pipelines/{pipeline_name}/start", status_code=202, tags=["Pipelines"])
def start_pipeline(
    service: Served,
    pipeline_name: str,
    initial: Annotated[str, Query(pattern="^(running|paused|standby)$")] = "running",
    bootstrap_policy: BootstrapPolicy = BootstrapPolicy.ALLOW,
    silent_bootstrap: bool = False,
    concurrent_bootstrap: bool = False,
    dismiss_error: bool = True,
) -> Response:
    """Have a pipeline run."""
    _refuse_bootstrap_options(silent=silent_bootstrap, concurrent=concurrent_bootstrap)
    change = actions.start(actions.INITIAL[initial], bootstrap_policy, dismiss_error=dismiss_error)
    return _changed(service, pipeline_name, change)


@router.post("/pipelines/{pipeline_name}/stop", status_code=202, tags=["Pipelines"])
def stop_pipeline(service: Served, pipeline_name: str, force: bool = False) -> Response:
    """End a pipeline: with a checkpoint, or by force at once."""
    return _changed(service, pipeline_name, actions.stop(force=force))


@router.post("/pipelines/{pipeline_name}/clear", status_code=202, tags=["Pipelines"])
def clear_pipeline(service: Served, pipeline_name: str) -> Response:
    """Delete the state of a stopped pipeline."""
    return _changed(service, pipeline_name, actions.clear)


@router.post("/pipelines/{pipeline_name}/dismiss_error", tags=["Pipelines"])
def dismiss_error(service: Served, pipeline_name: str) -> Response:
    """Forget why a stopped pipeline failed."""
    service.pipelines.change(pipeline_name, actions.dismiss_error)
    return Response(status_code=200)


@router.post("/pipelines/{pipeline_name}/diff", tags=["Pipelines"])
def diff_pipeline(service: Served, pipeline_name: str, body: DiffPipeline) -> dict[str, Any]:
    """What another program would change."""
    _refuse_runtime_version(body.runtime_version)
    row = _compiled(service, pipeline_name)
    new = row["program_code"] if body.program_code is None else body.program_code
    return service.compiler.diff(row["program_code"], new)


@router.get("/pipelines/{pipeline_name}/dataflow_graph", tags=["Monitoring"])
def dataflow_graph(service: Served, pipeline_name: str) -> dict[str, Any]:
    """How each view is kept up to date, operator by operator, whether the pipeline runs or not."""
    return service.compiler.explain(_compiled(service, pipeline_name)["program_code"])


def _compiled(service: Service, name: str) -> Row:
    """A pipeline, if its program is compiled."""
    row = service.pipelines.get(name)
    if row["program_status"] != ProgramStatus.SUCCESS:
        raise ApiError(
            404,
            "ProgramNotCompiled",
            f"The program of '{name}' is not compiled: its status is {row['program_status']}",
            {"program_status": row["program_status"]},
        )
    return row


@router.post("/validate_program", tags=["Programs"])
def validate_program(service: Served, body: ValidateProgram) -> dict[str, Any]:
    """Compile a program without making a pipeline."""
    _refuse_runtime_version(body.runtime_version)
    return service.compiler.validate(body.program_code)


@router.get("/pipelines/{pipeline_name}/events", tags=["Monitoring"])
def list_events(
    service: Served, pipeline_name: str, selector: SelectedOfEvent = EventSelector.STATUS
) -> list[dict[str, Any]]:
    """What happened to a pipeline, the latest first."""
    row = service.pipelines.get(pipeline_name)
    with service.database.read() as connection:
        return events(connection, row["id"], selector)


@router.get("/pipelines/{pipeline_name}/events/{event_id}", tags=["Monitoring"])
def get_event(
    service: Served, pipeline_name: str, event_id: str, selector: SelectedOfEvent = EventSelector.STATUS
) -> dict[str, Any]:
    """One thing that happened to a pipeline, or the latest."""
    row = service.pipelines.get(pipeline_name)
    with service.database.read() as connection:
        return event(connection, row["id"], event_id, selector)


@router.get(
    "/pipelines/{pipeline_name}/logs",
    tags=["Monitoring"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {}}}},
)
def stream_logs(
    service: Served, pipeline_name: str, cursor: str | None = None, follow: bool = True
) -> Response:
    """What the pipeline's processes wrote; and what they write from now on."""
    row = service.pipelines.get(pipeline_name)
    service.logs.prepare(row["id"])
    position = service.logs.position(row["id"], cursor)
    lines = service.logs.lines(row["id"], position, follow=follow)
    return StreamingResponse(lines, media_type="text/plain; charset=utf-8", headers=position.headers())


def _changed(service: Service, name: str, change: Any) -> Response:
    service.pipelines.change(name, change)
    service.supervisor.wake()
    return Response(status_code=202)


def _refuse_bootstrap_options(*, silent: bool, concurrent: bool) -> None:
    if silent and concurrent:
        raise ApiError(
            400,
            "InvalidBootstrapOptions",
            "silent_bootstrap and concurrent_bootstrap are mutually exclusive: give one of them",
        )
    if silent or concurrent:
        which = "silent_bootstrap" if silent else "concurrent_bootstrap"
        raise ApiError(
            501, "NotImplemented", f"Penstock fills changed views before it goes on: there is no {which}"
        )


def _refuse_runtime_version(version: str | None) -> None:
    if version is not None:
        raise ApiError(
            400,
            "InvalidRuntimeVersion",
            "Penstock has one version of its runtime: leave runtime_version out",
            {"runtime_version": version},
        )
