"""The steps of a deployment as changes of a pipeline's row: each says what holds after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.service.manager.clock import now, seconds_since
from penstock.service.manager.grouping import replica_count
from penstock.service.manager.pipelines import Change, Row
from penstock.service.statuses import (
    ResourcesDesiredStatus,
    ResourcesStatus,
    RuntimeDesiredStatus,
    RuntimeStatus,
    StorageStatus,
)

RESTARTS = 3
RESTART_SECONDS = 600.0
"""A pipeline is started again by itself at most so often in so long."""

TAKEN_IN = (RuntimeDesiredStatus.RUNNING, RuntimeDesiredStatus.PAUSED)
"""What a pipeline that is up can be told to be."""

_NO_RUNTIME: Mapping[str, Any] = {
    "deployment_runtime_status": None,
    "deployment_runtime_status_since": None,
    "deployment_runtime_status_details": None,
    "deployment_runtime_desired_status": None,
    "deployment_runtime_desired_status_since": None,
}


def provisioning(deployment_id: str, runner_id: str, pid: int) -> Change:
    """A process is there or starts; from now on there may be state on disk."""

    def change(row: Row) -> Mapping[str, Any]:
        if (
            row["deployment_resources_status"] != ResourcesStatus.STOPPED
            or row["deployment_resources_desired_status"] != ResourcesDesiredStatus.PROVISIONED
        ):
            return {}
        error = row["deployment_error"]
        again = {} if error is None else {"started_again_after": error["message"]}
        return {
            "deployment_resources_status": ResourcesStatus.PROVISIONING.value,
            "deployment_resources_status_details": {"pid": pid, **again},
            "deployment_error": None,
            "deployment_id": deployment_id,
            "runner_id": runner_id,
            "storage_status": StorageStatus.IN_USE.value,
            **_NO_RUNTIME,
        }

    return change


def observed(status: Mapping[str, Any]) -> Change:
    """The runner has the pipeline, and says how it is."""

    def change(row: Row) -> Mapping[str, Any]:
        if row["deployment_resources_status"] not in (
            ResourcesStatus.PROVISIONING,
            ResourcesStatus.PROVISIONED,
        ):
            return {}
        values = {
            "deployment_resources_status": ResourcesStatus.PROVISIONED.value,
            "deployment_runtime_status": status["status"],
            "deployment_runtime_status_details": status.get("details"),
            "deployment_runtime_desired_status": _desired(row, status["desired"]),
        }
        if status.get("storage_status_details") is not None:
            values["storage_status_details"] = status["storage_status_details"]
        return {name: value for name, value in values.items() if row[name] != value}

    return change


def _desired(row: Row, said: str) -> str:
    """What is wanted of a pipeline: what its runner says, unless it may not have been told yet to stop, or
    is one of several replicas, which are all told to pause or to go on."""
    desired = row["deployment_runtime_desired_status"]
    if desired == RuntimeDesiredStatus.SUSPENDED:
        return str(desired)
    several = replica_count(row["runtime_config"]) > 1
    return str(desired) if several and desired in TAKEN_IN and said in TAKEN_IN else said


def unavailable(why: str) -> Change:
    """The runner lives, and does not answer."""

    def change(row: Row) -> Mapping[str, Any]:
        if (
            row["deployment_resources_status"] != ResourcesStatus.PROVISIONED
            or row["deployment_runtime_status"] == RuntimeStatus.UNAVAILABLE
        ):
            return {}
        return {
            "deployment_runtime_status": RuntimeStatus.UNAVAILABLE.value,
            "deployment_runtime_status_details": {"reason": why},
        }

    return change


def stopping(error: Mapping[str, Any] | None, *, restart: bool = False) -> Change:
    """The process has to go, or went. The first error is the one that is kept."""

    def change(row: Row) -> Mapping[str, Any]:
        if row["deployment_resources_status"] not in (
            ResourcesStatus.PROVISIONING,
            ResourcesStatus.PROVISIONED,
        ):
            return {}
        values = {
            "deployment_resources_status": ResourcesStatus.STOPPING.value,
            "deployment_error": None if error is None else dict(error),
            **_NO_RUNTIME,
        }
        wanted = row["deployment_resources_desired_status"] == ResourcesDesiredStatus.PROVISIONED
        if restart and wanted:
            values["restarts"] = [*recent_restarts(row), now()]
            if row["deployment_runtime_desired_status"] in _RESUMABLE:
                values["deployment_initial"] = row["deployment_runtime_desired_status"]
        else:
            values["deployment_resources_desired_status"] = ResourcesDesiredStatus.STOPPED.value
        return values

    return change


_STOPS_WITH_SERVICE = "stops_with_the_service"
_RESUMABLE = (RuntimeDesiredStatus.RUNNING, RuntimeDesiredStatus.PAUSED, RuntimeDesiredStatus.STANDBY)


def stops_with_service(row: Row) -> Mapping[str, Any]:
    """The service stops, and tells the runner so: noted, for this manager may end before the runner does."""
    desired = row["deployment_runtime_desired_status"]
    if (
        row["deployment_resources_status"] not in (ResourcesStatus.PROVISIONING, ResourcesStatus.PROVISIONED)
        or desired == RuntimeDesiredStatus.SUSPENDED  # the user has stopped it
    ):
        return {}
    initial = desired if desired in _RESUMABLE else row["deployment_initial"]
    details = row["deployment_resources_status_details"] or {}
    return {"deployment_resources_status_details": {**details, _STOPS_WITH_SERVICE: initial}}


def is_put_off(row: Row) -> bool:
    """Whether the runner was told to stop only because the service did."""
    return _STOPS_WITH_SERVICE in (row["deployment_resources_status_details"] or {})


def put_off(row: Row) -> Mapping[str, Any]:
    """It stopped with the service: it is still wanted as it was, so the next manager starts it again."""
    if row["deployment_resources_status"] not in (ResourcesStatus.PROVISIONING, ResourcesStatus.PROVISIONED):
        return {}
    return {
        "deployment_resources_status": ResourcesStatus.STOPPING.value,
        "deployment_initial": row["deployment_resources_status_details"][_STOPS_WITH_SERVICE],
        **_NO_RUNTIME,
    }


def stopped(row: Row) -> Mapping[str, Any]:
    """There is no process any more."""
    if row["deployment_resources_status"] != ResourcesStatus.STOPPING:
        return {}
    values: dict[str, Any] = {
        "deployment_resources_status": ResourcesStatus.STOPPED.value,
        "deployment_resources_status_details": None,
        "deployment_id": None,
        "runner_id": None,
        **_NO_RUNTIME,
    }
    if row["deployment_resources_desired_status"] == ResourcesDesiredStatus.STOPPED:
        values |= {"deployment_initial": None, "bootstrap_policy": None}
    return values


def start_failed(error: Mapping[str, Any]) -> Change:
    """It could not even get a process."""

    def change(row: Row) -> Mapping[str, Any]:
        if row["deployment_resources_status"] != ResourcesStatus.STOPPED:
            return {}
        return {
            "deployment_resources_desired_status": ResourcesDesiredStatus.STOPPED.value,
            "deployment_initial": None,
            "bootstrap_policy": None,
            "deployment_error": dict(error),
        }

    return change


def cleared(row: Row) -> Mapping[str, Any]:
    """The state on disk is gone."""
    if row["storage_status"] != StorageStatus.CLEARING:
        return {}
    return {"storage_status": StorageStatus.CLEARED.value, "storage_status_details": None}


def start_limit(row: Row, default: float) -> float:
    """For how many seconds a process may be silent after its start."""
    return float(row["runtime_config"]["provisioning_timeout_secs"] or default)


def recent_restarts(row: Row) -> list[str]:
    """When the pipeline was started again by itself lately."""
    return [moment for moment in row["restarts"] or [] if seconds_since(moment) < RESTART_SECONDS]


def may_restart(row: Row) -> bool:
    """Whether a pipeline whose process died is started again: if it is fault tolerant, and not too often."""
    return (
        row["runtime_config"]["fault_tolerance"]["model"] != "none"
        and row["deployment_resources_desired_status"] == ResourcesDesiredStatus.PROVISIONED
        and row["deployment_runtime_desired_status"] != RuntimeDesiredStatus.SUSPENDED
        and len(recent_restarts(row)) < RESTARTS
    )
