"""The thread that looks at every pipeline a few times a second and has it brought to what is wanted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from penstock.service.manager import deployments
from penstock.service.manager.compiler import Compiler
from penstock.service.manager.endings import ending
from penstock.service.manager.grouping import replica_count
from penstock.service.manager.pipelines import Pipelines, Row
from penstock.service.manager.reconcile import Reconciler
from penstock.service.manager.replicas import Replicas
from penstock.service.manager.runner_client import RunnerClient, RunnerUnreachableError
from penstock.service.manager.runners import Runner, Runners
from penstock.service.manager.settings import Settings
from penstock.service.manager.spares import Spares
from penstock.service.statuses import ResourcesStatus

_log = logging.getLogger("penstock.manager")

_STEPS_AT_ONCE = 16
_DEPLOYED = (ResourcesStatus.PROVISIONING, ResourcesStatus.PROVISIONED)

Say = Callable[[str], None]


class Supervisor:
    """A step that waits for a slow runner holds up its own pipeline, and no other."""

    def __init__(
        self,
        settings: Settings,
        pipelines: Pipelines,
        runners: Runners,
        spares: Spares,
        client: RunnerClient,
        reconciler: Reconciler,
        replicas: Replicas,
        compiler: Compiler,
    ) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._runners = runners
        self._spares = spares
        self._client = client
        self._reconciler = reconciler
        self._replicas = replicas
        self._compiler = compiler
        self._steps: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(_STEPS_AT_ONCE, thread_name_prefix="penstock step")
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock supervisor", daemon=True)
        self._last_round = time.monotonic()

    def start(self) -> None:
        """Find what the manager before left, and begin."""
        used = [
            runner.id
            for row in self._pipelines.all()
            if row["runner_id"] is not None
            for runner in self._runners.of(row["id"])
        ]
        if strays := self._runners.remove_strays(used):
            _log.info("removed %d stray runners", len(strays))
        self._compiler.start()
        self._compiler.wake()
        self._thread.start()

    def wake(self) -> None:
        """Something is wanted: look now."""
        self._wake.set()
        self._compiler.wake()

    @property
    def is_healthy(self) -> bool:
        """Whether it looks at the pipelines as often as it should."""
        return self._thread.is_alive() and time.monotonic() - self._last_round < 10.0

    def end(self, say: Say, *, at_once: bool) -> None:
        """Stop looking; and unless all is to end at once, stop every pipeline in order first."""
        self._ending.set()
        self._wake.set()
        self._compiler.end()
        self._thread.join(10.0)
        self._pool.shutdown(wait=not at_once)
        if not at_once:
            self._spares.remove_all()
            self._stop_pipelines(say)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._round()
                self._last_round = time.monotonic()
            except Exception:
                # The database may be away for a moment; the pipelines go on without us.
                _log.exception("the pipelines could not be looked at")
            self._wake.wait(self._settings.poll_seconds)
            self._wake.clear()

    def _round(self) -> None:
        self._steps = {key: step for key, step in self._steps.items() if not step.done()}
        for row in self._pipelines.unsettled():
            self._begin(row["id"], row, partial(self._reconciler.step, row))
            for replica in _replicas(row):
                self._begin(f"{row['id']}/{replica}", row, partial(self._replicas.step, row, replica))
        self._spares.tend()

    def _begin(self, key: str, row: Row, step: Callable[[], None]) -> None:
        """Have one step done, unless the last one of the same kind still goes on."""
        if key not in self._steps:
            self._steps[key] = self._pool.submit(self._do, row, step)

    def _do(self, row: Row, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            _log.exception("pipeline %s could not be looked at", row["name"])

    def _stop_pipelines(self, say: Say) -> None:
        """The pipelines stay wanted, so the next manager starts them again where they were."""
        waiting: dict[str, tuple[Row, list[Runner]]] = {}
        killed: set[str] = set()
        for row in self._pipelines.all():
            runners = self._runners.of(row["id"])
            if runners and row["deployment_resources_status"] in _DEPLOYED:
                waiting[row["id"]] = row, runners
                self._pipelines.change_by_id(row["id"], deployments.stops_with_service)
                killed |= {runner.id for runner in runners if not self._tell_to_stop(row, runner)}
        deadline = time.monotonic() + self._settings.stop_seconds
        while waiting and time.monotonic() < deadline:
            names = ", ".join(sorted(row["name"] for row, _ in waiting.values()))
            say(f"Stopping with a checkpoint: {names} ...")
            for id_, (row, runners) in list(waiting.items()):
                if not any(runner.is_alive for runner in runners):
                    self._put_off(row, runners, killed)
                    del waiting[id_]
            time.sleep(0.1)
        for row, runners in waiting.values():
            left = ", ".join(str(runner.pid) for runner in runners if runner.is_alive)
            _log.warning("pipeline %s did not stop in time and is left running", row["name"])
            say(f"Pipeline {row['name']} did not stop in time and is left running (process {left}).")

    def _tell_to_stop(self, row: Row, runner: Runner) -> bool:
        """False: it does not listen, so it was killed. What it had confirmed is in its journal."""
        try:
            self._client.stop(runner)
            return True
        except RunnerUnreachableError as error:
            _log.warning("pipeline %s cannot be stopped in order: %s", row["name"], error)
            runner.kill()
            return False

    def _put_off(self, row: Row, runners: list[Runner], killed: set[str]) -> None:
        row = self._pipelines.get_by_id(row["id"]) or row
        asked = next((runner for runner in runners if runner.id == row["runner_id"]), runners[0])
        if not asked.ended_in_order and asked.id not in killed:
            change = deployments.stopping(ending(asked))
        elif deployments.is_put_off(row):
            change = deployments.put_off
        else:
            change = deployments.stopping(None)
        self._pipelines.change_by_id(row["id"], change)
        for runner in runners:
            self._runners.remove(runner)
        self._pipelines.change_by_id(row["id"], deployments.stopped)


def _replicas(row: Row) -> range:
    """Those of a pipeline that have steps of their own; one that runs alone has none."""
    count = replica_count(row["runtime_config"])
    up = row["deployment_resources_status"] == ResourcesStatus.PROVISIONED
    return range(count if count > 1 and up else 0)
