"""One step of one pipeline from what it is towards what is wanted. A step may wait a little, never long."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.service.errors import error_body
from penstock.service.manager import deployments, replica_states
from penstock.service.manager.clock import seconds_since
from penstock.service.manager.endings import ending
from penstock.service.manager.grouping import OWN_GROUP, replica_count, storage_name
from penstock.service.manager.logs import Logs
from penstock.service.manager.pipelines import Pipelines, Row
from penstock.service.manager.processes import exit_reason
from penstock.service.manager.replicas import Replicas
from penstock.service.manager.runner_client import RunnerClient, RunnerRefusedError, RunnerUnreachableError
from penstock.service.manager.runners import Runner, Runners
from penstock.service.manager.settings import Settings
from penstock.service.statuses import (
    ProgramStatus,
    ResourcesDesiredStatus,
    ResourcesStatus,
    RuntimeDesiredStatus,
    RuntimeStatus,
    StorageStatus,
)

_log = logging.getLogger("penstock.manager")

_PATIENCE_SECONDS = 5.0
"""A runner that lives, and gives no answer or cannot go on for so long, is left for another replica, if there
is one that can."""


class Reconciler:
    """Safe to use for several pipelines at once, by one thread for each."""

    def __init__(
        self,
        settings: Settings,
        pipelines: Pipelines,
        runners: Runners,
        replicas: Replicas,
        client: RunnerClient,
        logs: Logs,
    ) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._runners = runners
        self._replicas = replicas
        self._client = client
        self._logs = logs
        self._told_to_stop: set[str] = set()

    def step(self, row: Row) -> None:
        """Look at one pipeline, and do what comes next."""
        steps: dict[str, Callable[[Row], None]] = {
            ResourcesStatus.STOPPED: self._while_stopped,
            ResourcesStatus.PROVISIONING: self._while_provisioning,
            ResourcesStatus.PROVISIONED: self._while_provisioned,
            ResourcesStatus.STOPPING: self._while_stopping,
        }
        steps[row["deployment_resources_status"]](row)

    def _while_stopped(self, row: Row) -> None:
        if row["deployment_resources_desired_status"] == ResourcesDesiredStatus.PROVISIONED:
            self._provision(row)
        elif row["storage_status"] == StorageStatus.CLEARING:
            for path in self._state_of(row):
                _remove(path)
            self._pipelines.change_by_id(row["id"], deployments.cleared)

    def _provision(self, row: Row) -> None:
        if row["program_status"] in (ProgramStatus.SQL_ERROR, ProgramStatus.SYSTEM_ERROR):
            error = error_body(
                "StartFailedDueToFailedCompilation",
                "Not possible to start the pipeline because the program failed to compile",
                {"compiler_error": row["program_error"]},
            )
            self._pipelines.change_by_id(row["id"], deployments.start_failed(error))
        elif row["program_status"] == ProgramStatus.SUCCESS:
            self._remove_surplus(row)
            runner = self._replicas.launch(row, 0)
            try:
                self._logs.begin(row["id"], runner)
            except OSError:
                self._runners.remove(runner)  # or the next step would start another
                raise
            change = deployments.provisioning(str(uuid.uuid4()), runner.id, runner.pid)
            after = self._pipelines.change_by_id(row["id"], change)
            if after is None or after["runner_id"] != runner.id:
                self._runners.remove(runner)  # it was stopped or deleted at that very moment
                return
            for replica in range(1, replica_count(row["runtime_config"])):
                self._replicas.launch_other(after, replica)

    def _state_of(self, row: Row) -> Iterator[Path]:
        """Every directory with state of a pipeline; what others share elsewhere is not its own."""
        directory = self._settings.pipelines / row["id"]
        yield directory / storage_name(0)
        yield from directory.glob(storage_name(0) + "-*")
        yield directory / OWN_GROUP

    def _remove_surplus(self, row: Row) -> None:
        """There were more replicas: what those had the others have, and it would only become old."""
        directory = self._settings.pipelines / row["id"]
        kept = {storage_name(replica) for replica in range(replica_count(row["runtime_config"]))}
        for path in directory.glob(storage_name(0) + "-*"):
            if path.name not in kept:
                _remove(path)

    def _while_provisioning(self, row: Row) -> None:
        runner = self._living_runner(row)
        if runner is None:
            return
        limit = deployments.start_limit(row, self._settings.start_seconds)
        if seconds_since(row["deployment_resources_status_since"]) > limit:
            error = error_body(
                "PipelineProvisioningTimeout",
                f"The pipeline's process did not answer within {limit:.0f} seconds",
                {"seconds": limit, "log": runner.last_lines()},
            )
            self._pipelines.change_by_id(row["id"], deployments.stopping(error))
        elif runner.endpoint() is not None:
            try:
                self._deploy(row, runner)
            except RunnerRefusedError as error:
                body = error_body("DeploymentRefused", f"The runner refused the pipeline: {error}", None)
                self._pipelines.change_by_id(row["id"], deployments.stopping(body))
            except RunnerUnreachableError as error:
                _log.info("pipeline %s cannot be deployed yet: %s", row["name"], error)

    def _deploy(self, row: Row, runner: Runner) -> None:
        status = self._replicas.status(row, runner)
        if status["deployment_id"] != row["deployment_id"]:
            return
        if replica_states.has_replicas(row):  # whatever it says, it is one of several from now on
            self._pipelines.change_by_id(row["id"], deployments.observed(status))
        else:
            self._observe(row, runner, status)

    def _while_provisioned(self, row: Row) -> None:
        runner = self._living_runner(row)
        if runner is None:
            return
        try:
            if replica_states.ends(row) and runner.id not in self._told_to_stop:
                self._client.stop(runner)
                self._told_to_stop.add(runner.id)
            self._observe(row, runner, self._replicas.status(row, runner))
            self._logs.rotate(row["id"])
        except RunnerUnreachableError as error:
            if not runner.is_alive:
                self._died(row, runner)
            elif not self._has_been(row, RuntimeStatus.UNAVAILABLE) or not self._replicas.take_over(
                row, runner, "did not answer", up=True
            ):
                self._pipelines.change_by_id(row["id"], deployments.unavailable(str(error)))

    def _has_been(self, row: Row, status: RuntimeStatus) -> bool:
        """Whether a pipeline has had a status for long, so that another replica may be asked instead."""
        return (
            row["deployment_runtime_status"] == status
            and seconds_since(row["deployment_runtime_status_since"]) > _PATIENCE_SECONDS
        )

    def _observe(self, row: Row, runner: Runner, status: dict[str, Any]) -> None:
        error = status.get("error")
        if error is None:
            self._pipelines.change_by_id(row["id"], deployments.observed(status))
            self._replicas.observed(row, runner, status)
            if replica_states.is_stuck(status) and self._has_been(row, RuntimeStatus.PAUSED):
                self._replicas.take_over(row, runner, "cannot run a transaction", up=True)
        elif not self._replicas.take_over(row, runner, f"failed: {error['message']}", error):
            _log.warning("pipeline %s failed: %s", row["name"], error["message"])
            self._pipelines.change_by_id(row["id"], deployments.stopping(error))

    def _living_runner(self, row: Row) -> Runner | None:
        """The runner of a pipeline that is to go on; None after noticing that it must not or cannot."""
        if row["deployment_resources_desired_status"] == ResourcesDesiredStatus.STOPPED:
            self._pipelines.change_by_id(row["id"], deployments.stopping(None))
            return None
        runner = self._runners.get(row["runner_id"])
        if runner is None:
            error = error_body("RunnerLost", "The pipeline's process was never started, or was lost", None)
            self._pipelines.change_by_id(row["id"], deployments.stopping(error))
            return None
        if not runner.is_alive:
            self._died(row, runner)
            return None
        return runner

    def _died(self, row: Row, runner: Runner) -> None:
        """A runner ended: as it was told to, or not."""
        row = self._pipelines.get_by_id(row["id"]) or row
        suspended = row["deployment_runtime_desired_status"] == RuntimeDesiredStatus.SUSPENDED
        if replica_states.ends(row) and not self._replicas.are_ended(row, runner):
            return
        said = runner.failure()
        in_order = runner.ended_in_order
        if in_order and deployments.is_put_off(row):
            self._pipelines.change_by_id(row["id"], deployments.put_off)
            return
        if in_order and suspended:
            self._pipelines.change_by_id(row["id"], deployments.stopping(None))
            return
        error = ending(runner)
        if self._replicas.take_over(row, runner, exit_reason(runner.pid), None if said is None else error):
            return
        restart = said is None and deployments.may_restart(row)
        _log.warning(
            "the process of pipeline %s %s%s",
            row["name"],
            exit_reason(runner.pid),
            "; it is started again" if restart else "",
        )
        self._pipelines.change_by_id(row["id"], deployments.stopping(error, restart=restart))

    def _while_stopping(self, row: Row) -> None:
        if self._replicas.kill_all(row):
            self._told_to_stop.discard(row["runner_id"])
            self._pipelines.change_by_id(row["id"], deployments.stopped)


def _remove(storage: Path) -> None:
    """Gone at once as a whole, for a start must not meet a part of it; then deleted."""
    renamed = storage.with_name(f"cleared-{uuid.uuid4()}")
    try:
        storage.rename(renamed)
    except FileNotFoundError:
        return
    shutil.rmtree(renamed, ignore_errors=True)
