"""What a pipeline's row says of each of its replicas, and the changes of that: each says what holds after it.

It is in `deployment_resources_status_details`, under `replicas`, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.service.manager.clock import now, seconds_since
from penstock.service.manager.deployments import RESTART_SECONDS, RESTARTS, is_put_off, observed
from penstock.service.manager.grouping import replica_count
from penstock.service.manager.pipelines import Change, Row
from penstock.service.manager.runners import Runner
from penstock.service.statuses import (
    ResourcesDesiredStatus,
    ResourcesStatus,
    RuntimeDesiredStatus,
    RuntimeStatus,
)

FAILED = "Failed"
"""The status of a replica that is not started again before its pipeline is."""

_ENDED = "ended"
_OF_ONE_PROCESS = ("pid", "leads", "lag_seconds")


def has_replicas(row: Row) -> bool:
    return replica_count(row["runtime_config"]) > 1


def go_on(row: Row) -> bool:
    """Whether the replicas of a pipeline are to run: it does, and nobody told it to stop."""
    return bool(
        has_replicas(row)
        and row["deployment_resources_status"] == ResourcesStatus.PROVISIONED
        and row["deployment_resources_desired_status"] == ResourcesDesiredStatus.PROVISIONED
        and not ends(row)
    )


def ends(row: Row) -> bool:
    """Whether its processes were told to end in order, or will be."""
    suspended = row["deployment_runtime_desired_status"] == RuntimeDesiredStatus.SUSPENDED
    return suspended or is_put_off(row)


def has_failed(row: Row, replica: int) -> bool:
    """Whether a replica is not started again."""
    return _entry(row, replica).get("status") == FAILED


def is_stuck(status: Mapping[str, Any]) -> bool:
    """Whether a replica that should take in cannot: a transaction failed."""
    return bool(
        status["status"] == RuntimeStatus.PAUSED and status["desired"] == RuntimeDesiredStatus.RUNNING
    )


def seen(runner: Runner, status: Mapping[str, Any]) -> Change:
    """A replica is there, and says how it is; or it does not answer, and others say so."""

    def change(row: Row) -> Mapping[str, Any]:
        if not go_on(row):
            return {}
        of_group = status.get("replica") or {}
        entry = {
            "pid": runner.pid,
            "status": status["status"],
            "requests": runner.id == row["runner_id"],
            "leads": bool(of_group.get("leads")),
            # In whole seconds: what changes all the time would be written all the time.
            "lag_seconds": int(of_group.get("lag_seconds") or 0),
        }
        return _changed(row, runner.replica, entry)

    return change


def silent(runner: Runner) -> Change:
    """A replica lives, and does not answer."""
    return seen(runner, {"status": RuntimeStatus.UNAVAILABLE.value})


def died(runner: Runner, error: Mapping[str, Any]) -> Change:
    """A replica's process ended by itself: it is started again, unless that was done too often lately."""

    def change(row: Row) -> Mapping[str, Any]:
        restarts = _entry(row, runner.replica).get("restarts", [])
        lately = [moment for moment in restarts if seconds_since(moment) < RESTART_SECONDS]
        if len(lately) >= RESTARTS:
            return failed(runner, error)(row)
        entry = {
            "status": RuntimeStatus.UNAVAILABLE.value,
            "restarts": [*lately, now()],
            "started_again_after": error["message"],
        }
        return _gone(row, runner, entry)

    return change


def failed(runner: Runner, error: Mapping[str, Any]) -> Change:
    """A replica cannot go on, and would not if it was started again."""

    def change(row: Row) -> Mapping[str, Any]:
        return _gone(row, runner, {"status": FAILED, "error": dict(error)})

    return change


def _gone(row: Row, runner: Runner, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Not of the one that requests go to: what its end means for the pipeline is for the pipeline's step."""
    if not go_on(row) or row["runner_id"] == runner.id:
        return {}
    entry = {"requests": False, _ENDED: runner.id, **entry}
    return _changed(row, runner.replica, entry, without=_OF_ONE_PROCESS)


def taken_over(before: Runner, runner: Runner, status: Mapping[str, Any] | None, why: str) -> Change:
    """Requests go to another replica from now on, which said this of itself if it is up."""

    def change(row: Row) -> Mapping[str, Any]:
        if not go_on(row) or row["runner_id"] != before.id:
            return {}
        if _entry(row, runner.replica).get(_ENDED) == runner.id:
            return {}  # at that very moment
        details = _with(row, before.replica, {"requests": False})
        row = {**row, "deployment_resources_status_details": details}
        details = _with(row, runner.replica, {"requests": True})
        said = f"replica {runner.replica} took over from replica {before.replica}, which {why}"
        values = {
            "runner_id": runner.id,
            "deployment_resources_status_details": {**details, "pid": runner.pid, "took_over": said},
        }
        if status is None:
            return values
        return {**observed(status)(row), **values}

    return change


def wants(desired: RuntimeDesiredStatus) -> Change:
    """The one that gets requests was told to pause or to go on: so are the others, and those to come."""

    def change(row: Row) -> Mapping[str, Any]:
        return {"deployment_runtime_desired_status": desired.value} if go_on(row) else {}

    return change


def _entry(row: Row, replica: int) -> dict[str, Any]:
    found = (row["deployment_resources_status_details"] or {}).get("replicas", [])
    return dict(next((entry for entry in found if entry["replica"] == replica), {"replica": replica}))


def _changed(
    row: Row, replica: int, values: Mapping[str, Any], without: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    details = _with(row, replica, values, without)
    changes = details != row["deployment_resources_status_details"]
    return {"deployment_resources_status_details": details} if changes else {}


def _with(row: Row, replica: int, values: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The details with other values for one replica."""
    kept = {name: value for name, value in _entry(row, replica).items() if name not in without}
    entries = [
        {**kept, **values} if index == replica else _entry(row, index)
        for index in range(replica_count(row["runtime_config"]))
    ]
    return {**(row["deployment_resources_status_details"] or {}), "replicas": entries}
