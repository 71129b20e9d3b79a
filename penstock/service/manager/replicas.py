"""The replicas of a pipeline: requests go to one of them, and this looks after the others.

Each has a step of its own, so that one that hangs holds up neither the pipeline nor another replica.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from penstock.service.errors import ApiError, error_body
from penstock.service.manager import deployments, replica_states
from penstock.service.manager.endings import ending
from penstock.service.manager.grouping import group_setting, replica_count, storage_name
from penstock.service.manager.logs import Logs
from penstock.service.manager.pipelines import Change, Pipelines, Row
from penstock.service.manager.processes import exit_reason
from penstock.service.manager.runner_client import RunnerClient, RunnerRefusedError, RunnerUnreachableError
from penstock.service.manager.runners import Runner, Runners, runner_settings
from penstock.service.manager.settings import Settings
from penstock.service.manager.spares import Spares
from penstock.service.statuses import ResourcesStatus, RuntimeDesiredStatus, RuntimeStatus

_log = logging.getLogger("penstock.manager")

_DEPLOYED = (ResourcesStatus.PROVISIONING, ResourcesStatus.PROVISIONED)
_TOLD = {RuntimeDesiredStatus.PAUSED: "/pause", RuntimeDesiredStatus.RUNNING: "/resume"}
_UP = (RuntimeStatus.RUNNING, RuntimeStatus.PAUSED)
_APPROVED = (*_UP, RuntimeStatus.REPLAYING)


class Replicas:
    """Safe to use by several threads, one for each replica."""

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
        self._ended_since: dict[str, float] = {}

    # -- starting -------------------------------------------------------------------------------

    def launch(self, row: Row, replica: int) -> Runner:
        """A process for a replica: a spare, or a new one."""
        settings = runner_settings(row["runtime_config"])
        spare = self._spares.take(settings)
        if spare is None:
            return self._runners.launch(settings, row["id"], replica)
        return self._runners.assign(spare, row["id"], replica)

    def launch_other(self, row: Row, replica: int) -> None:
        """A process for one that requests do not go to, if the pipeline is still deployed as it was."""
        runner = self.launch(row, replica)
        after = self._pipelines.get_by_id(row["id"])
        if (
            after is None
            or after["deployment_resources_status"] not in _DEPLOYED
            or after["deployment_id"] != row["deployment_id"]
        ):
            self._runners.remove(runner)  # it was stopped at that very moment, and nobody will look for this

    def status(self, row: Row, runner: Runner) -> dict[str, Any]:
        """What a runner says, after it was told what to run if it did not know yet."""
        status = self._client.status(runner)
        if status["deployment_id"] is not None or replica_states.ends(row):
            return status
        directory = self._settings.pipelines / row["id"]
        storage = directory / storage_name(runner.replica)
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
                "initial": _initial(row),
                "bootstrap_policy": row["bootstrap_policy"],
                "group": group_setting(row["runtime_config"], directory),
            },
        )
        return self._client.status(runner)

    # -- looking after them ---------------------------------------------------------------------

    def step(self, row: Row, replica: int) -> None:
        """Look at one replica, and do what comes next, unless it is the one that requests go to."""
        found = self._pipelines.get_by_id(row["id"])
        if found is None or found["deployment_resources_status"] != ResourcesStatus.PROVISIONED:
            return
        runner = next((one for one in self._runners.of(found["id"]) if one.replica == replica), None)
        if runner is not None and runner.id == found["runner_id"]:
            return
        if replica_states.go_on(found):
            self._tend(found, replica, runner)
        elif runner is not None and replica_states.ends(found):
            self._stop(runner)

    def _tend(self, row: Row, replica: int, runner: Runner | None) -> None:
        if runner is None:
            if not replica_states.has_failed(row, replica):
                self.launch_other(row, replica)
        elif not runner.is_alive:
            self._bury(row, runner)
        elif runner.endpoint() is not None:
            self._look_at(row, runner)
        elif runner.age_seconds > deployments.start_limit(row, self._settings.start_seconds):
            self._bury(row, runner)

    def _look_at(self, row: Row, runner: Runner) -> None:
        try:
            status = self.status(row, runner)
            if status["deployment_id"] != row["deployment_id"]:
                self._runners.remove(runner)  # of an earlier deployment
            elif status.get("error") is not None:
                self._give_up(row, runner, status["error"])
            else:
                self._agree(row, runner, status)
                self._change(row, replica_states.seen(runner, status))
        except RunnerRefusedError as error:
            message = f"The runner refused the replica: {error}"
            self._give_up(row, runner, error_body("DeploymentRefused", message, None))
        except RunnerUnreachableError:
            if runner.is_alive:
                self._change(row, replica_states.silent(runner))

    def _agree(self, row: Row, runner: Runner, status: Mapping[str, Any]) -> None:
        """Have a replica paused, running, approved of as the one that requests go to."""
        desired = row["deployment_runtime_desired_status"]
        if status["status"] in _UP and desired in _TOLD and status["desired"] != desired:
            self._try(runner, _TOLD[desired])
        elif (
            status["status"] == RuntimeStatus.AWAITING_APPROVAL
            and row["deployment_runtime_status"] in _APPROVED
        ):
            self._try(runner, "/approve")

    def _try(self, runner: Runner, path: str) -> None:
        """Tell a replica something; it may be too late or too early for that."""
        try:
            self._client.tell(runner, path)
        except RunnerRefusedError as error:
            _log.info("replica %d of pipeline %s: %s", runner.replica, runner.pipeline_id, error)

    def _bury(self, row: Row, runner: Runner) -> None:
        """A replica's process ended, or never came up."""
        said = runner.failure()
        error = ending(runner)
        _log.warning("replica %d of pipeline %s %s", runner.replica, row["name"], exit_reason(runner.pid))
        change = replica_states.died if said is None else replica_states.failed
        self._remove(row, runner, change(runner, error))

    def _give_up(self, row: Row, runner: Runner, error: Mapping[str, Any]) -> None:
        _log.warning("replica %d of pipeline %s failed: %s", runner.replica, row["name"], error["message"])
        self._remove(row, runner, replica_states.failed(runner, error))

    def _remove(self, row: Row, runner: Runner, change: Change) -> None:
        after = self._pipelines.change_by_id(row["id"], change)
        if after is None or after["runner_id"] != runner.id:  # or it took over at that very moment
            self._runners.remove(runner)

    def _change(self, row: Row, change: Change) -> None:
        if change(row):  # or every look would be a write
            self._pipelines.change_by_id(row["id"], change)

    # -- the one that requests go to ------------------------------------------------------------

    def observed(self, row: Row, runner: Runner, status: Mapping[str, Any]) -> None:
        """Write down how the one is that requests go to, and have it be what is wanted."""
        if replica_states.go_on(row):
            self._agree(row, runner, status)
            self._change(row, replica_states.seen(runner, status))

    def take_over(
        self,
        row: Row,
        before: Runner,
        why: str,
        error: Mapping[str, Any] | None = None,
        *,
        up: bool = False,
    ) -> bool:
        """Let requests go to another replica, if there is one that can go on; `up`: if it does already. With
        an `error` of its own the one before is given up; otherwise it is looked after like the others."""
        if not replica_states.go_on(row):
            return False
        found = self._successor(row, before, up=up)
        if found is None:
            return False
        runner, status = found
        self._logs.begin(row["id"], runner)
        change = replica_states.taken_over(before, runner, status, why)
        after = self._pipelines.change_by_id(row["id"], change)
        if after is None or after["runner_id"] != runner.id:
            return False
        _log.warning("pipeline %s: replica %d takes over from one that %s", row["name"], runner.replica, why)
        if error is not None:
            self._give_up(after, before, error)
        return True

    def _successor(
        self, row: Row, before: Runner, *, up: bool
    ) -> tuple[Runner, dict[str, Any] | None] | None:
        """One that is up if possible, with what it says, and otherwise one that is on its way, or waits for
        somebody to help it."""
        coming: Runner | None = None
        for runner in self.others(row, before):
            try:
                status = self._client.status(runner)
                if (
                    status["error"] is None
                    and status["status"] in _UP
                    and not replica_states.is_stuck(status)
                ):
                    self._agree(row, runner, status)
                    return runner, status
                if status["error"] is None:
                    coming = coming or runner
            except RunnerUnreachableError:
                if runner.endpoint() is None:
                    coming = coming or runner
        return None if up or coming is None else (coming, None)

    def others(self, row: Row, than: Runner) -> list[Runner]:
        """The replicas that live beside one."""
        return [one for one in self._runners.of(row["id"]) if one.id != than.id and one.is_alive]

    # -- stopping -------------------------------------------------------------------------------

    def _stop(self, runner: Runner) -> None:
        if not runner.is_alive or runner.id in self._told_to_stop:
            return
        if runner.endpoint() is None:
            runner.kill()  # it has no pipeline yet
            return
        try:
            self._client.stop(runner)
            self._told_to_stop.add(runner.id)
        except RunnerUnreachableError as error:
            _log.info("replica %d of pipeline %s: %s", runner.replica, runner.pipeline_id, error)

    def are_ended(self, row: Row, runner: Runner) -> bool:
        """Whether all others ended, too, or had time enough for it."""
        if not self.others(row, runner):
            return True
        since = self._ended_since.setdefault(runner.id, time.monotonic())
        return time.monotonic() - since > self._settings.stop_seconds

    def kill_all(self, row: Row) -> bool:
        """End all processes of a pipeline, and forget them; False if that is not done yet."""
        runners = self._runners.of(row["id"])
        for runner in runners:
            runner.kill()
        if any(runner.is_alive for runner in runners):
            return False
        for runner in runners:
            self._told_to_stop.discard(runner.id)
            self._ended_since.pop(runner.id, None)
            self._runners.remove(runner)
        return True

    # -- what users ask -------------------------------------------------------------------------

    def paused(self, name: str) -> None:
        """The one that requests go to was told to take in nothing more."""
        row = self._pipelines.get(name)
        self._pipelines.change_by_id(row["id"], replica_states.wants(RuntimeDesiredStatus.PAUSED))

    def resumed(self, name: str, *, skipped: bool) -> None:
        """The one that requests go to was told to go on, perhaps after a failure: so are the others. What it
        `skipped` they skip by themselves, since it said so to their group."""
        row = self._pipelines.get(name)
        self._pipelines.change_by_id(row["id"], replica_states.wants(RuntimeDesiredStatus.RUNNING))
        if skipped or not replica_states.go_on(row):
            return
        for runner in self._runners.of(row["id"]):
            if runner.id != row["runner_id"]:
                try:
                    self._client.tell(runner, "/resume")
                except RunnerUnreachableError as error:
                    _log.info("replica %d of pipeline %s: %s", runner.replica, name, error)

    def tell_others(self, name: str, path: str) -> None:
        """Have all others do what the one that requests go to did; refused if one of them cannot."""
        row = self._pipelines.get(name)
        if not replica_states.go_on(row):
            return
        for replica in range(replica_count(row["runtime_config"])):
            if replica_states.has_failed(row, replica):
                continue
            runner = next((one for one in self._runners.of(row["id"]) if one.replica == replica), None)
            if runner is None or runner.id != row["runner_id"]:
                self._tell(row, replica, runner, path)

    def _tell(self, row: Row, replica: int, runner: Runner | None, path: str) -> None:
        why = "it is being started"
        if runner is not None:
            try:
                self._client.tell(runner, path)
                return
            except RunnerUnreachableError as error:
                why = str(error)
        raise ApiError(
            503,
            "PipelineInteractionUnreachable",
            f"Replica {replica} of pipeline '{row['name']}' did not take this, though others did: {why}. Send"
            " the request again when it is running.",
            {"pipeline_name": row["name"], "request": path, "error": why},
        )


def _initial(row: Row) -> str:
    """How a replica begins: as those that run are now."""
    desired = row["deployment_runtime_desired_status"]
    return str(desired if desired in _TOLD else row["deployment_initial"])
