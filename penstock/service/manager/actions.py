"""What users ask of a pipeline: start, stop, clear, dismiss. Each is checked, and changes what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.service.errors import ApiError
from penstock.service.manager.pipelines import Change, Row, is_stopped
from penstock.service.statuses import (
    BootstrapPolicy,
    ResourcesDesiredStatus,
    ResourcesStatus,
    RuntimeDesiredStatus,
    StorageStatus,
)

INITIAL = {
    "running": RuntimeDesiredStatus.RUNNING,
    "paused": RuntimeDesiredStatus.PAUSED,
    "standby": RuntimeDesiredStatus.STANDBY,
}
"""What `/start?initial=` may be."""


def start(initial: RuntimeDesiredStatus, policy: BootstrapPolicy, *, dismiss_error: bool) -> Change:
    """Have the pipeline run, and be like this at first."""

    def change(row: Row) -> Mapping[str, Any]:
        error = None if dismiss_error else row["deployment_error"]
        _check_start(row, error)
        _check_unchanged(row, "deployment_initial", initial, "InitialImmutableUnlessStopped", "initial")
        _check_unchanged(
            row, "bootstrap_policy", policy, "BootstrapPolicyImmutableUnlessStopped", "bootstrap policy"
        )
        if initial == RuntimeDesiredStatus.STANDBY and not _follows(row["runtime_config"]):
            raise ApiError(
                400,
                "InitialStandbyNotAllowed",
                "A standby follows the checkpoints in an object store: set storage.backend.config.sync in the"
                " runtime configuration, with bucket and start_from_checkpoint",
            )
        return {
            "deployment_resources_desired_status": ResourcesDesiredStatus.PROVISIONED.value,
            "deployment_initial": initial.value,
            "bootstrap_policy": policy.value,
            "deployment_error": error,
        }

    return change


def _follows(runtime_config: Mapping[str, Any]) -> bool:
    """Whether a start has an object store to get its state from."""
    backend = (runtime_config.get("storage") or {}).get("backend") or {}
    sync = (backend.get("config") or {}).get("sync") or {}
    return sync.get("start_from_checkpoint") is not None


def stop(*, force: bool) -> Change:
    """End the pipeline: with a checkpoint, or at once."""

    def change(row: Row) -> Mapping[str, Any]:
        status = row["deployment_resources_status"]
        if is_stopped(row) or status == ResourcesStatus.STOPPING:
            return {"deployment_resources_desired_status": ResourcesDesiredStatus.STOPPED.value}
        if status == ResourcesStatus.STOPPED:
            return {
                "deployment_resources_desired_status": ResourcesDesiredStatus.STOPPED.value,
                "deployment_initial": None,
                "bootstrap_policy": None,
            }
        if force or status == ResourcesStatus.PROVISIONING:
            return {"deployment_resources_desired_status": ResourcesDesiredStatus.STOPPED.value}
        if row["runtime_config"]["storage"] is None:
            reason = (
                "this pipeline does not support the suspend action for the following reason(s):\n"
                "    - Storage must be configured"
            )
            raise ApiError(
                405,
                "UnsupportedPipelineAction",
                f"Unsupported pipeline action 'suspend': {reason}",
                {"action": "suspend", "reason": reason},
            )
        return {
            "deployment_runtime_desired_status": RuntimeDesiredStatus.SUSPENDED.value,
            "deployment_resources_status_details": None,
        }

    return change


def clear(row: Row) -> Mapping[str, Any]:
    """Give up the state on disk."""
    if not is_stopped(row):
        raise ApiError(
            400,
            "StorageStatusImmutableUnlessStopped",
            "Storage can only be cleared while the pipeline is stopped. Stop it first by invoking '/stop'.",
            {
                "resources_status": row["deployment_resources_status"],
                "resources_desired_status": row["deployment_resources_desired_status"],
                "current_status": row["storage_status"],
                "new_status": StorageStatus.CLEARING.value,
            },
        )
    if row["storage_status"] == StorageStatus.CLEARED:
        raise ApiError(
            400,
            "InvalidStorageStatusTransition",
            "Cannot transition from storage status 'cleared' to 'clearing'",
            {"current_status": StorageStatus.CLEARED.value, "new_status": StorageStatus.CLEARING.value},
        )
    return {"storage_status": StorageStatus.CLEARING.value}


def dismiss_error(row: Row) -> Mapping[str, Any]:
    """Forget why the pipeline failed."""
    if row["deployment_error"] is None:
        return {}
    if not is_stopped(row):
        raise ApiError(
            400,
            "DismissErrorRestrictedToFullyStopped",
            "The deployment error can only be dismissed while the pipeline is fully stopped."
            " Stop it first by invoking '/stop'.",
        )
    return {"deployment_error": None}


def _check_start(row: Row, error: Any) -> None:
    status, desired = row["deployment_resources_status"], row["deployment_resources_desired_status"]
    if status != ResourcesStatus.STOPPED and desired == ResourcesDesiredStatus.STOPPED:
        raise _illegal(
            row,
            "Cannot restart the pipeline while it is stopping."
            " Wait for it to stop before starting a new instance of the pipeline.",
        )
    if row["deployment_runtime_desired_status"] == RuntimeDesiredStatus.SUSPENDED:
        raise _illegal(
            row,
            "Cannot start the pipeline while it is suspending."
            " Wait for it to stop before starting a new instance of the pipeline.",
        )
    if is_stopped(row) and row["storage_status"] == StorageStatus.CLEARING:
        raise _illegal(row, "Cannot start the pipeline while its storage is cleared. Wait for it.")
    if is_stopped(row) and error is not None:
        raise _illegal(
            row,
            "The pipeline has a deployment error. Look at it, and then dismiss it by invoking"
            " '/dismiss_error' or '/start?dismiss_error=true'.",
        )


def _illegal(row: Row, hint: str) -> ApiError:
    status, desired = row["deployment_resources_status"], row["deployment_resources_desired_status"]
    return ApiError(
        400,
        "IllegalPipelineAction",
        f"Deployment resources status (current: '{status}', desired: '{desired}') cannot have desired changed"
        f" to 'Provisioned'. {hint}",
        {
            "status": status,
            "current_desired_status": desired,
            "new_desired_status": ResourcesDesiredStatus.PROVISIONED.value,
            "hint": hint,
        },
    )


def _check_unchanged(row: Row, field: str, wanted: str, code: str, what: str) -> None:
    if row[field] is not None and row[field] != wanted:
        raise ApiError(
            400,
            code,
            f"The {what} of a pipeline that is started is '{row[field]}' and cannot become '{wanted}'."
            " Stop the pipeline first by invoking '/stop'.",
        )
