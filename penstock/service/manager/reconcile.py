"""One step of one pipeline from what it is towards what is wanted. A step may wait a little, never long."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.service.errors import error_body
from penstock.service.manager import deployments
from penstock.service.manager.clock import seconds_since
from penstock.service.manager.logs import Logs
from penstock.service.manager.pipelines import Pipelines, Row
from penstock.service.manager.processes import exit_reason
from penstock.service.manager.runner_client import RunnerClient, RunnerRefusedError, RunnerUnreachableError
from penstock.service.manager.runners import Runner, Runners, runner_settings
from penstock.service.manager.settings import Settings
from penstock.service.manager.spares import Spares
from penstock.service.statuses import (
    ProgramStatus,
    ResourcesDesiredStatus,
    ResourcesStatus,
    RuntimeDesiredStatus,
    StorageStatus,
)

_log = logging.getLogger("penstock.manager")


class Reconciler:
    """Safe to use for several pipelines at once, by one thread for each."""

    def __init__(
        self,
        settings: Settings,
        pipelines: Pipelines,
        runners: Runners,
        spares: Spares,
        client: RunnerClient,
        logs: Logs,
    ) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._runners = runners
        self._spares = spares
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
            _remove(self._settings.pipelines / row["id"] / "storage")
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
            settings = runner_settings(row["runtime_config"])
            runner = self._spares.take(settings)
            if runner is None:
                runner = self._runners.launch(settings, row["id"])
            else:
                self._runners.assign(runner, row["id"])
            try:
                self._logs.begin(row["id"], runner)
            except OSError:
                self._runners.remove(runner)  # or the next step would start another
                raise
            change = deployments.provisioning(str(uuid.uuid4()), runner.id, runner.pid)
            after = self._pipelines.change_by_id(row["id"], change)
            if after is None or after["runner_id"] != runner.id:
                self._runners.remove(runner)  # it was stopped or deleted at that very moment

    def _while_provisioning(self, row: Row) -> None:
        runner = self._living_runner(row)
        if runner is None:
            return
        limit = row["runtime_config"]["provisioning_timeout_secs"] or self._settings.start_seconds
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
        status = self._client.status(runner)
        if status["deployment_id"] is None:
            storage = self._settings.pipelines / row["id"] / "storage"
            storage.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._client.deploy(
                runner,
                {
                    "deployment_id": row["deployment_id"],
                    "name": row["name"],
                    "pipeline_id": row["id"],
                    "program_code": row["program_code"],
                    "runtime_config": row["runtime_config"],
                    "storage": str(storage.absolute()),
                    "initial": row["deployment_initial"],
                    "bootstrap_policy": row["bootstrap_policy"],
                },
            )
            status = self._client.status(runner)
        if status["deployment_id"] == row["deployment_id"]:
            self._observe(row, status)

    def _while_provisioned(self, row: Row) -> None:
        runner = self._living_runner(row)
        if runner is None:
            return
        try:
            if (
                row["deployment_runtime_desired_status"] == RuntimeDesiredStatus.SUSPENDED
                and runner.id not in self._told_to_stop
            ):
                self._client.stop(runner)
                self._told_to_stop.add(runner.id)
            self._observe(row, self._client.status(runner))
            self._logs.rotate(row["id"])
        except RunnerUnreachableError as error:
            if runner.is_alive:
                self._pipelines.change_by_id(row["id"], deployments.unavailable(str(error)))
            else:
                self._died(row, runner)

    def _observe(self, row: Row, status: dict[str, Any]) -> None:
        if status.get("error") is not None:
            _log.warning("pipeline %s failed: %s", row["name"], status["error"].get("message"))
            self._pipelines.change_by_id(row["id"], deployments.stopping(status["error"]))
        else:
            self._pipelines.change_by_id(row["id"], deployments.observed(status))

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
        said = runner.failure()
        in_order = runner.ended_in_order
        if in_order and deployments.is_put_off(row):
            self._pipelines.change_by_id(row["id"], deployments.put_off)
            return
        if in_order and suspended:
            self._pipelines.change_by_id(row["id"], deployments.stopping(None))
            return
        error = ending(runner)
        restart = said is None and deployments.may_restart(row)
        _log.warning(
            "the process of pipeline %s %s%s",
            row["name"],
            exit_reason(runner.pid),
            "; it is started again" if restart else "",
        )
        self._pipelines.change_by_id(row["id"], deployments.stopping(error, restart=restart))

    def _while_stopping(self, row: Row) -> None:
        runner = self._runners.get(row["runner_id"])
        if runner is not None:
            runner.kill()
            if runner.is_alive:
                return
            self._told_to_stop.discard(runner.id)
            self._runners.remove(runner)
        self._pipelines.change_by_id(row["id"], deployments.stopped)


def _remove(storage: Path) -> None:
    """Gone at once as a whole, for a start must not meet a part of it; then deleted."""
    renamed = storage.with_name(f"cleared-{uuid.uuid4()}")
    try:
        storage.rename(renamed)
    except FileNotFoundError:
        return
    shutil.rmtree(renamed, ignore_errors=True)


def ending(runner: Runner) -> dict[str, Any]:
    """Why a runner ended: what it said itself, or what is known from outside."""
    said = runner.failure()
    lines = runner.last_lines()
    reason = exit_reason(runner.pid)
    if said is not None:
        details = said.get("details")
        return error_body(
            said.get("error_code") or "RunnerFailed",
            said["message"],
            {**(details if isinstance(details, dict) else {"details": details}), "log": lines},
        )
    return error_body(
        "RunnerDied",
        f"The pipeline's process {reason}. Its log ends with:\n" + "\n".join(lines),
        {"reason": reason, "exit_code": runner.exit_code, "log": lines},
    )
