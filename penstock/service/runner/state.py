"""Transactions, checkpoints and connectors of the pipeline."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import APIRouter, Query

from penstock.errors import PenstockError, StateError
from penstock.pipeline import Pipeline
from penstock.references import redacted, redacted_in
from penstock.service.errors import ApiError
from penstock.service.runner.control import Hosted
from penstock.service.runner.host import Host
from penstock.service.runner.statistics import input_status, output_status

router = APIRouter()

_COMMIT_SECONDS = 300.0


# -- transactions ---------------------------------------------------------------------------------


@router.post("/start_transaction")
def start_transaction(host: Hosted) -> dict[str, Any]:
    try:
        return {"transaction_id": host.pipeline().start_transaction()}
    except StateError as error:
        if host.pipeline().open_transaction is None:
            raise
        raise ApiError(409, "TransactionInProgress", str(error)) from error


@router.post("/commit_transaction")
def commit_transaction(host: Hosted) -> None:
    """Answers when the transaction is committed or has failed; when that takes long, as soon as it is begun:
    whoever waits looks at the statistics."""
    commit = _Commit(host.pipeline(), _opened(host))
    commit.thread.start()
    commit.thread.join(_COMMIT_SECONDS)
    if commit.error is not None:
        raise ApiError(400, "TransactionFailed", str(commit.error), {"transaction_id": commit.number})


class _Commit:
    """A commit in a thread of its own, and why it failed."""

    def __init__(self, pipeline: Pipeline, number: int) -> None:
        self.number = number
        self.error: PenstockError | None = None
        self._pipeline = pipeline
        self.thread = threading.Thread(target=self._run, name="penstock commit", daemon=True)

    def _run(self) -> None:
        try:
            self._pipeline.commit_transaction(self.number)
        except PenstockError as error:
            self.error = error  # the pipeline is paused, and its statistics say why


@router.post("/rollback_transaction")
def rollback_transaction(host: Hosted) -> dict[str, Any]:
    return {"transaction_id": host.pipeline().rollback_transaction(_opened(host))}


def _opened(host: Host) -> int:
    number = host.pipeline().open_transaction
    if number is None:
        raise ApiError(409, "NoTransactionInProgress", "no transaction is open; start one first")
    return number


# -- checkpoints ----------------------------------------------------------------------------------


class _Checkpoints:
    """Those that were asked for, taken one after the other."""

    def __init__(self) -> None:
        self.success: int | None = None
        self.failure: dict[str, Any] | None = None
        self._last = 0
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="penstock checkpoint")

    def ask(self, pipeline: Pipeline, name: str | None) -> int:
        """The number of the request."""
        with self._lock:
            self._last += 1
            self._worker.submit(self._take, self._last, pipeline, name)
            return self._last

    def _take(self, number: int, pipeline: Pipeline, name: str | None) -> None:
        try:
            pipeline.checkpoint(name)
            self.success = number
        except Exception as error:
            self.failure = {"sequence_number": number, "error": redacted(str(error))}


_checkpoints = _Checkpoints()


@router.post("/checkpoint")
def checkpoint(host: Hosted, name: Annotated[str | None, Query()] = None) -> dict[str, Any]:
    number = _checkpoints.ask(host.pipeline(), name)
    return {"checkpoint_sequence_number": number, "incarnation_uuid": host.deployed().incarnation}


@router.get("/checkpoint_status")
def checkpoint_status(
    host: Hosted, incarnation_uuid: Annotated[str | None, Query()] = None
) -> dict[str, Any]:
    _expect_incarnation(host, incarnation_uuid)
    return {"success": _checkpoints.success, "failure": _checkpoints.failure}


def _expect_incarnation(host: Host, expected: str | None) -> None:
    now = host.deployed().incarnation
    if expected not in (None, "", now):
        raise ApiError(
            400,
            "IncarnationUuidMismatch",
            f"the pipeline was started again since: it is {now} now, and {expected} was asked for",
            {"expected": expected, "actual": now},
        )


@router.get("/checkpoints")
def checkpoints(host: Hosted) -> list[dict[str, Any]]:
    return [
        {
            "uuid": found["id"],
            "identifier": found["name"],
            "fingerprint": int(found["program"][:16], 16),
            "size": found["bytes"],
            "steps": found["transaction"],
            "processed_records": found["processed_records"] or 0,
        }
        for found in host.pipeline().checkpoints()
    ]


@router.post("/checkpoint/sync", status_code=202)
def sync_checkpoint(host: Hosted) -> dict[str, Any]:
    """Begin to copy the newest checkpoint; whoever asks while it is copied joins."""
    pipeline = _with_object_store(host)
    return {
        "checkpoint_uuid": pipeline.sync_checkpoint(wait=False),
        "incarnation_uuid": host.deployed().incarnation,
    }


@router.get("/checkpoint/sync_status")
def sync_status(host: Hosted, incarnation_uuid: Annotated[str | None, Query()] = None) -> dict[str, Any]:
    pipeline = _with_object_store(host)
    _expect_incarnation(host, incarnation_uuid)
    found = redacted_in(pipeline.stats()["sync"])
    return {name: found[name] for name in ("success", "periodic", "failure", "running")}


@router.get("/checkpoints/remote")
def remote_checkpoints(host: Hosted) -> list[dict[str, Any]]:
    return [
        {
            "uuid": found["id"],
            "identifier": found["name"],
            "at": found["at"],
            "size": found["bytes"],
            "steps": found["transaction"],
            "processed_records": found["processed_records"] or 0,
        }
        for found in _listed_remotely(host)
    ]


def _listed_remotely(host: Host) -> list[dict[str, Any]]:
    """Also those that a standby follows."""
    deployment = host.deployed()
    pipeline = deployment.pipeline if deployment.status == "Standby" else _with_object_store(host)
    return pipeline.remote_checkpoints()


def _with_object_store(host: Host) -> Pipeline:
    pipeline = host.pipeline()
    if pipeline.stats()["sync"] is None:
        raise ApiError(
            400,
            "UnsupportedPipelineAction",
            "this pipeline has no object store: its checkpoints are in its storage directory only. Set"
            " storage.backend.config.sync in its runtime configuration",
            {"action": "sync", "reason": "no object store is configured"},
        )
    return pipeline


# -- connectors -----------------------------------------------------------------------------------


def _connector(host: Host, kind: str, relation: str, name: str) -> dict[str, Any]:
    """Statistics of a connector of a table or view."""
    stats = redacted_in(host.pipeline().stats())
    found = stats[f"{kind}s"].get(name)
    of = "table" if kind == "input" else "view"
    if found is None or found[of].lower() != relation.strip('"').lower():
        raise ApiError(
            404,
            "UnknownInputEndpoint" if kind == "input" else "UnknownOutputEndpoint",
            f"{relation} has no connector {name}",
            {"endpoint_name": f"{relation}.{name}"},
        )
    return {**found, "_stats": stats}


@router.get("/tables/{table}/connectors/{name}/stats")
def input_stats(host: Hosted, table: str, name: str) -> dict[str, Any]:
    return input_status(name, _connector(host, "input", table, name))


@router.get("/views/{view}/connectors/{name}/stats")
def output_stats(host: Hosted, view: str, name: str) -> dict[str, Any]:
    found = _connector(host, "output", view, name)
    return output_status(name, found, found["_stats"])


@router.get("/tables/{table}/connectors/{name}/completion_token")
def completion_token(host: Hosted, table: str, name: str) -> dict[str, Any]:
    _connector(host, "input", table, name)
    return {"token": host.tokens.give(host.pipeline().sent_by(name))}


@router.post("/tables/{table}/connectors/{name}/{action}")
def act_on_input(host: Hosted, table: str, name: str, action: str) -> None:
    _connector(host, "input", table, name)
    if action == "pause":
        host.pipeline().pause_connector(name)
    elif action == "start":
        host.pipeline().resume_connector(name)
    else:
        raise ApiError(400, "InvalidConnectorAction", f"a connector can be started or paused, not {action!r}")
