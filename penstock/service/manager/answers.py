"""A pipeline as it is told: all of it, or what says how it is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from penstock.service.statuses import ResourcesStatus, combined_desired_status, combined_status


class Selector(StrEnum):
    """Which fields are asked for."""

    ALL = "all"
    STATUS = "status"
    STATUS_WITH_CONNECTORS = "status_with_connectors"


class EventSelector(StrEnum):
    """Which fields of an event are asked for."""

    ALL = "all"
    STATUS = "status"


_STATUS = (
    "id",
    "name",
    "description",
    "tags",
    "created_at",
    "version",
    "platform_version",
    "program_version",
    "program_status",
    "program_status_since",
    "deployment_error",
    "refresh_version",
    "storage_status",
    "storage_status_details",
    "deployment_id",
    "deployment_initial",
    "deployment_resources_status",
    "deployment_resources_status_details",
    "deployment_resources_status_since",
    "deployment_resources_desired_status",
    "deployment_resources_desired_status_since",
    "deployment_runtime_status",
    "deployment_runtime_status_details",
    "deployment_runtime_status_since",
    "deployment_runtime_desired_status",
    "deployment_runtime_desired_status_since",
)
_REST = (
    "runtime_config",
    "program_code",
    "udf_rust",
    "udf_toml",
    "program_config",
    "program_error",
    "program_info",
)


def told(row: Mapping[str, Any], selector: Selector = Selector.ALL) -> dict[str, Any]:
    """The fields that a selector asks for."""
    answer = {field: row[field] for field in _STATUS}
    if selector == Selector.ALL:
        answer |= {field: row[field] for field in _REST}
    answer |= {
        "deployment_status": status(row),
        "deployment_status_since": _latest(
            row["deployment_resources_status_since"], row["deployment_runtime_status_since"]
        ),
        "deployment_desired_status": desired_status(row),
        "deployment_desired_status_since": _latest(
            row["deployment_resources_desired_status_since"], row["deployment_runtime_desired_status_since"]
        ),
    }
    if selector == Selector.STATUS_WITH_CONNECTORS:
        answer["connectors"] = _connectors(row)
    return answer


def status(row: Mapping[str, Any]) -> str:
    return combined_status(row["deployment_resources_status"], row["deployment_runtime_status"])


def desired_status(row: Mapping[str, Any]) -> str:
    return combined_desired_status(
        row["deployment_resources_desired_status"],
        row["deployment_runtime_desired_status"],
        row["deployment_initial"],
    )


def _latest(one: str, other: str | None) -> str:
    return one if other is None else max(one, other)


def _connectors(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """How many errors the connectors had, if the runner said so with its status."""
    if row["deployment_resources_status"] != ResourcesStatus.PROVISIONED:
        return None
    details = row["deployment_runtime_status_details"] or {}
    found: dict[str, Any] | None = details.get("connector_stats")
    return found
