"""What happened to each pipeline: its states, recorded whenever one of them changes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from penstock.service.errors import ApiError
from penstock.service.manager.clock import now
from penstock.service.manager.schema import pipeline_events

KEPT = 720
"""So many are kept for a pipeline."""

_STATUS = (
    "deployment_resources_status",
    "deployment_resources_desired_status",
    "deployment_runtime_status",
    "deployment_runtime_desired_status",
    "program_status",
    "storage_status",
)
_DETAILS = (
    "deployment_error",
    "deployment_resources_status_details",
    "deployment_runtime_status_details",
    "storage_status_details",
)
_WATCHED = (*_STATUS, "deployment_error")


def record_if_changed(
    connection: Connection, before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> bool:
    """Record the states of a pipeline if they are not what they were."""
    if (
        before is not None
        and all(before[field] == after[field] for field in _WATCHED)
        and _troubles(before) == _troubles(after)
    ):
        return False
    content = {field: after[field] for field in (*_STATUS, *_DETAILS)}
    values = {
        "id": str(uuid.uuid4()),
        "pipeline_id": after["id"],
        "recorded_at": now(),
        "content": content,
    }
    connection.execute(insert(pipeline_events).values(values))
    _forget_old(connection, after["id"])
    return True


def _troubles(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Why the last copy of a checkpoint failed, which outputs get nothing, which replicas died or failed, and
    which of them requests went to before."""
    details = row["deployment_runtime_status_details"] or {}
    resources = row["deployment_resources_status_details"] or {}
    replicas = [(one.get("restarts"), one.get("error")) for one in resources.get("replicas", ())]
    return details.get("sync_failure"), details.get("stalled"), resources.get("took_over"), replicas


def _forget_old(connection: Connection, pipeline_id: str) -> None:
    of = pipeline_events.c.pipeline_id == pipeline_id
    oldest = (
        select(pipeline_events.c.number)
        .where(of)
        .order_by(pipeline_events.c.number.desc())
        .offset(KEPT)
        .limit(1)
        .scalar_subquery()
    )
    connection.execute(delete(pipeline_events).where(of, pipeline_events.c.number <= oldest))


def events(connection: Connection, pipeline_id: str, selector: str) -> list[dict[str, Any]]:
    """The events of a pipeline, the latest first."""
    query = (
        select(pipeline_events)
        .where(pipeline_events.c.pipeline_id == pipeline_id)
        .order_by(pipeline_events.c.number.desc())
    )
    return [_shown(row._mapping, selector) for row in connection.execute(query)]


def event(connection: Connection, pipeline_id: str, event_id: str, selector: str) -> dict[str, Any]:
    """One event by its identifier, or the `latest`."""
    query = select(pipeline_events).where(pipeline_events.c.pipeline_id == pipeline_id)
    if event_id == "latest":
        query = query.order_by(pipeline_events.c.number.desc()).limit(1)
    else:
        query = query.where(pipeline_events.c.id == _identifier(event_id))
    found = connection.execute(query).first()
    if found is None:
        raise ApiError(
            404, "UnknownPipelineMonitorEvent", f"Unknown event '{event_id}'", {"event_id": event_id}
        )
    return _shown(found._mapping, selector)


def _identifier(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise ApiError(
            400, "InvalidUuidParam", f"Event '{text}' is neither a UUID nor 'latest'", {"value": text}
        ) from error


def count(connection: Connection, pipeline_id: str) -> int:
    query = select(func.count()).where(pipeline_events.c.pipeline_id == pipeline_id)
    return int(connection.execute(query).scalar_one())


def _shown(row: Mapping[Any, Any], selector: str) -> dict[str, Any]:
    content = row["content"]
    answer = {
        "event_id": row["id"],
        "recorded_at": row["recorded_at"],
        "deployment_has_error": content["deployment_error"] is not None,
        **{field: content[field] for field in _STATUS},
    }
    if selector == "all":
        answer.update({field: content[field] for field in _DETAILS})
    return answer
