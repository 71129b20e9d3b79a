"""The pipeline of a runner, from the order to deploy it to its end."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.checkpoint.model import CATALOG_FILE
from penstock.controller.stored import program_of
from penstock.errors import PenstockError, StateError
from penstock.pipeline import Pipeline
from penstock.references import redacted, redacted_in
from penstock.service.errors import error_body
from penstock.service.runner.boot import CONFINED
from penstock.service.runner.compiling import differing
from penstock.service.runner.confinement import (
    refuse_group,
    refuse_paths,
    refuse_programs,
    resolve_references,
)
from penstock.service.workers import effective_workers

_log = logging.getLogger("penstock")

_LIMITS = ("min_batch_size_records", "max_buffering_delay_usecs")
_OF_REPLICA = ("leads", "lag_transactions", "lag_seconds")
_GATHERING_USECS = 200_000
"""Many clients that push rows one by one share transactions."""


@dataclass(frozen=True)
class Order:
    """What is to be run, where, and how it begins."""

    deployment_id: str
    name: str
    program_code: str
    runtime_config: Mapping[str, Any]
    storage: str
    initial: str = "Running"
    bootstrap_policy: str = "allow"
    pipeline_id: str = ""
    group: Mapping[str, Any] | None = None
    """Where the group of replicas is, if it is one; the storage is this replica's own."""


@dataclass
class Deployment:
    """Starts the pipeline in a thread of its own, and knows how that goes."""

    order: Order
    roots: Sequence[str] | None = None
    """Where its connectors may read and write files; None if anywhere."""
    take: Callable[[SparkSession], None] = lambda _: None
    """Is given Spark before the program gets there."""
    incarnation: str = field(default_factory=lambda: str(uuid.uuid4()))
    error: dict[str, Any] | None = None
    approval: dict[str, Any] | None = None
    """What the changed program changes, while somebody has to approve of it."""
    activation_error: str | None = None
    """Why a standby could not be activated."""
    desired: str = ""
    """`RuntimeDesiredStatus` of the reference."""
    _activation: threading.Lock = field(default_factory=threading.Lock)
    _activating: bool = False
    _approved: threading.Event = field(default_factory=threading.Event)
    _started: bool = False
    _stopped: bool = False

    def __post_init__(self) -> None:
        self.desired = self.order.initial
        self.pipeline = Pipeline(
            self.order.name,
            self.order.program_code,
            storage=self.order.storage,
            config=pipeline_config(self.order.runtime_config)
            | ({} if self.order.group is None else {"group": dict(self.order.group)}),
        )
        self.pipeline.registered = self.order.pipeline_id

    def begin(self, ready: Callable[[], None]) -> None:
        """Start as soon as what it needs is `ready`."""
        threading.Thread(target=self._start, args=(ready,), name="penstock start", daemon=True).start()

    def _start(self, ready: Callable[[], None]) -> None:
        try:
            refuse_paths(self.pipeline.program, self.roots)
            refuse_group(self.order.runtime_config.get("group") or {}, self.roots)
            resolve_references(self.pipeline.program)
            ready()
            if self._stopped:
                return
            initial = self.order.initial
            self.pipeline.start(
                paused=initial == "Paused",
                standby=initial == "Standby",
                approve=self._ask_for_approval,
                vet=self._vet,
            )
            if self.pipeline.state != "Standby":
                self._begin_running("Running" if initial == "Standby" else initial)
        except PenstockError as error:
            if not self._stopped:
                self._fail(error, error.code)
        except Exception as error:
            _log.exception("the pipeline could not be started")
            self._fail(error, "INTERNAL_ERROR")

    def _vet(self, spark: SparkSession) -> None:
        self.take(spark)
        refuse_programs(spark, self.pipeline.program)

    def _begin_running(self, desired: str) -> None:
        self.desired = desired
        self._started = True

    def activate(self, desired: str) -> None:
        """Let a standby take over. If it cannot, it stands by as before, and `details` say why. To ask again
        while it does so changes nothing."""
        with self._activation:
            if self._activating:
                return
            self._activating = True
            self.activation_error = None
        threading.Thread(
            target=self._activate, args=(desired,), name="penstock activate", daemon=True
        ).start()

    def _activate(self, desired: str) -> None:
        try:
            self.pipeline.activate(paused=desired == "Paused", approve=self._ask_for_approval)
            self._begin_running(desired)
        except Exception as error:
            if self.pipeline.state == "Standby":
                self.activation_error = redacted(str(error))
                _log.error("the standby could not be activated, and stands by as before: %s", error)
            elif not self._stopped:
                self._fail(error, getattr(error, "code", "INTERNAL_ERROR"))
        finally:
            self._activating = False

    def _fail(self, error: Exception, code: str) -> None:
        self.error = error_body(code, str(error), {})
        _log.error("%s", error)

    def _ask_for_approval(self) -> None:
        """What the policy says about a program that is not the one of the storage."""
        storage = Path(self.order.storage)
        if self.order.bootstrap_policy == "allow" or not (storage / CATALOG_FILE).exists():
            return
        before = program_of(storage)
        if before == self.order.program_code:
            return
        found = differing(before, self.order.program_code)
        if not any(found["program_diff"].values()):
            return
        if self.order.bootstrap_policy == "reject":
            changed = json.dumps({k: v for k, v in found["program_diff"].items() if v})
            raise StateError(
                f"the program changed, and the bootstrap policy is to reject that: {changed}. Change it back,"
                " or start with another policy"
            )
        self.approval = found
        self._approved.wait()
        self.approval = None
        if self._stopped:
            raise StateError("the pipeline was stopped while it waited for an approval")

    def approve(self) -> None:
        """Let the changed program go on."""
        if self.approval is None:
            raise StateError("the pipeline does not wait for an approval")
        self._approved.set()

    @property
    def status(self) -> str:
        """`RuntimeStatus` of the reference."""
        if self.error is not None or self.broken is not None:
            return "Unavailable"
        if self.approval is not None:
            return "AwaitingApproval"
        if self._stopped:
            return "Suspended"
        state = self.pipeline.state
        if state in ("Standby", "Bootstrapping", "Replaying"):
            return state
        if not self._started:
            return "Initializing"
        return "Paused" if state == "Paused" else "Running"

    @property
    def details(self) -> dict[str, Any] | None:
        """`ExtendedRuntimeStatusDetails` of the reference: what is waited for, and why it is paused."""
        if self.approval is not None:
            return {"reason": "the program changed", "approval_diff": self.approval}
        if self.status == "Standby" and (stats := self.pipeline.stats().get("standby")) is not None:
            standby = redacted_in(stats)
            found = {"reason": self.activation_error or standby["error"], "standby": standby}
            return found | ({"activation_error": self.activation_error} if self.activation_error else {})
        if not self._started and (waits := self.pipeline.waits_for) is not None:
            return {"reason": redacted(waits)}
        if (fetched := self.pipeline.fetching) is not None:
            return {"reason": f"its state is fetched from the object store: {fetched}"}
        found = {}
        if self.status == "Paused" and self.pipeline.failure is not None:
            found["reason"] = redacted(self.pipeline.failure)
        if self._started and (failed := self.pipeline.sync_failure) is not None:
            found["sync_failure"] = redacted(failed)
        if self._started and (waits := self.pipeline.waits_for) is not None:
            found["hosts"] = redacted(waits)
        if self._started and (stalled := self.pipeline.stalled):
            found["stalled"] = {name: redacted(reason) for name, reason in stalled.items()}
        return found or None

    @property
    def replica(self) -> dict[str, Any] | None:
        """What it is to its group now, if it has one and is up."""
        found = self.pipeline.replica
        return None if found is None else {name: found[name] for name in _OF_REPLICA}

    @property
    def broken(self) -> str | None:
        """Why a pipeline that was running cannot go on."""
        if not self._started or self._stopped or self.pipeline.state != "Stopped":
            return None
        return str(self.pipeline.stats()["error"])

    def running(self) -> Pipeline:
        """The pipeline, if it can be asked."""
        if self.error is not None:
            raise StateError(f"the pipeline is not running: {self.error['message']}")
        if self.status == "Standby":
            raise StateError("the pipeline stands by; activate it first")
        if self.status in ("Initializing", "AwaitingApproval", "Bootstrapping", "Suspended"):
            raise StateError(f"the pipeline is not running yet: it is {self.status}")
        return self.pipeline

    def pause(self) -> None:
        self.running().pause()
        self.desired = "Paused"

    def resume(self, skip_transaction: int | None) -> None:
        self.running().resume(skip_transaction=skip_transaction)
        self.desired = "Running"

    def stop(self) -> None:
        """Finish what was accepted and take a checkpoint."""
        self._stopped = True
        self._approved.set()
        self.pipeline.stop()


def object_store(runtime: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The settings of an object store in a `RuntimeConfig` of the reference.

    >>> object_store({"storage": {"backend": {"name": "file", "config": {"sync": {"bucket": "b"}}}}})
    {'bucket': 'b'}
    """
    backend = (runtime.get("storage") or {}).get("backend") or {}
    found: Mapping[str, Any] | None = (backend.get("config") or {}).get("sync")
    return found


def pipeline_config(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a `Pipeline` for the `RuntimeConfig` of the reference.

    >>> pipeline_config({"workers": 1, "fault_tolerance": {"model": "exactly_once"}, "tracing": False})
    {'max_gathering_delay_usecs': 200000, 'workers': 1, 'fault_tolerance': {}}
    """
    found: dict[str, Any] = {name: runtime[name] for name in _LIMITS if runtime.get(name)}
    found["max_gathering_delay_usecs"] = _GATHERING_USECS
    if runtime.get("hosts", 1) > 1:
        found |= {name: runtime[name] for name in ("hosts", "workers", "coordinator") if runtime.get(name)}
        found["spark"] = {**runtime.get("spark", {}), **CONFINED}
    elif "workers" in runtime:
        found["workers"] = effective_workers(runtime["workers"])
    tolerance = runtime.get("fault_tolerance")
    if tolerance is not None:
        seconds = "checkpoint_interval_secs"
        # 0 is how the reference switches automatic checkpoints off.
        found["fault_tolerance"] = {seconds: tolerance[seconds] or None} if seconds in tolerance else {}
    sync = object_store(runtime)
    if sync is not None:
        found["storage"] = {"backend": {"config": {"sync": sync}}}
    return found
