"""What a pipeline is doing, as the reference API tells it (`ControllerStatus`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psutil

from penstock.references import redacted_in
from penstock.service.runner.deployment import Deployment

_LOOK_SECONDS = 5.0

_BEGAN = psutil.Process().create_time()


_seen: tuple[float, int] = (0.0, 0)


def resident_bytes() -> int:
    """The memory of this process and of those that it started: the JVM and the Python workers.

    Looking at all processes takes a while, and this is asked for several times a second.
    """
    global _seen
    if time.monotonic() - _seen[0] > _LOOK_SECONDS:
        _seen = time.monotonic(), _counted()
    return _seen[1]


def _counted() -> int:
    total = 0
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # it ended meanwhile
    return total


def controller_status(deployment: Deployment) -> dict[str, Any]:
    """`ControllerStatus` of the reference."""
    stats = redacted_in(deployment.running().stats())
    inputs: Mapping[str, Any] = stats.get("inputs", {})
    outputs: Mapping[str, Any] = stats.get("outputs", {})
    checkpoint: Mapping[str, Any] = stats.get("checkpoint", {})
    waits, since = checkpoint.get("waits_for"), checkpoint.get("taking_since")
    return {
        "global_metrics": _global(deployment, stats),
        "suspend_error": None if waits is None else {"Temporary": [waits]},
        "checkpoint_activity": {"status": "in_progress", "started_at": since}
        if since
        else {"status": "idle"},
        "permanent_checkpoint_errors": None,
        "inputs": [input_status(name, found) for name, found in inputs.items()],
        "outputs": [output_status(name, found, stats) for name, found in outputs.items()],
        **({} if stats["hosts"] is None else {"hosts": stats["hosts"]}),
    }


def _global(deployment: Deployment, stats: Mapping[str, Any]) -> dict[str, Any]:
    now = time.time()
    under_way: Mapping[str, Any] = stats.get("transaction") or {}
    client = bool(under_way.get("client"))
    committing = client and under_way["state"] != "open"
    tables: Mapping[str, Any] = stats.get("tables", {})
    inputs: Mapping[str, Any] = stats.get("inputs", {})
    rows = sum(table["rows_in"] for table in tables.values())
    queued = stats.get("queued_rows", 0) + (0 if client else under_way.get("rows", 0))
    completed = stats.get("transactions", 0)
    storage = sum(trace["bytes"] for trace in stats.get("traces", {}).values())
    return {
        "state": "Paused" if deployment.status == "Paused" else "Running",
        "bootstrap_in_progress": deployment.status == "Bootstrapping",
        "concurrent_bootstrap_phase": "Inactive",
        "concurrent_bootstrap_progress": None,
        "transaction_status": (
            "CommitInProgress" if committing else "TransactionInProgress" if client else "NoTransaction"
        ),
        "transaction_id": under_way["number"] if client else 0,
        "transaction_msecs": None,
        "transaction_records": under_way["rows"] if client else None,
        "transaction_initiators": {
            "transaction_id": under_way["number"] if client else None,
            "initiated_by_api": ("Committed" if committing else "Started") if client else None,
            "initiated_by_connectors": {},
        },
        "commit_progress": None,
        "rss_bytes": resident_bytes(),
        "memory_pressure": "low",
        "memory_pressure_epoch": 0,
        "cpu_msecs": int(sum(psutil.Process().cpu_times()[:2]) * 1000),
        "uptime_msecs": int((now - _BEGAN) * 1000),
        "runtime_elapsed_msecs": int((now - _BEGAN) * 1000),
        "start_time": int(_BEGAN),
        "initial_start_time": int(_BEGAN),
        "incarnation_uuid": deployment.incarnation,
        "storage_bytes": storage,
        "storage_mb_secs": 0,
        "output_stall_msecs": 0,
        "total_input_records": rows + queued,
        "total_input_bytes": 0,
        "total_processed_records": rows,
        "total_processed_bytes": 0,
        "total_completed_records": rows,
        "total_initiated_steps": completed,
        "total_completed_steps": completed,
        "buffered_input_records": queued,
        "buffered_input_bytes": 0,
        "pipeline_complete": bool(inputs) and bool(stats.get("complete")),
    }


def input_status(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """`InputEndpointStatus` of the reference."""
    failed = found["status"] == "failed"
    return {
        "endpoint_name": f"{found['table']}.{name}",
        "config": {"stream": found["table"]},
        "metrics": {
            "total_bytes": 0,
            "total_records": found["rows"],
            "buffered_records": found["queued"],
            "buffered_bytes": 0,
            "num_transport_errors": found["errors"],
            "num_parse_errors": found["bad_records"],
            "end_of_input": found["ended"],
        },
        "fatal_error": found["last_error"] if failed else None,
        "health": health(found),
        "parse_errors": _errors(str(record["reason"]) for record in found["bad_records_shown"]),
        "transport_errors": _errors([found["last_error"]] if found["last_error"] else []),
        "paused": found["status"] == "paused",
        "barrier": False,
    }


def output_status(name: str, found: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any]:
    """`OutputEndpointStatus` of the reference."""
    failed = found["status"] == "failed"
    rows = sum(table["rows_in"] for table in stats.get("tables", {}).values())
    return {
        "endpoint_name": f"{found['view']}.{name}",
        "config": {"stream": found["view"]},
        "metrics": {
            "transmitted_records": found["rows"],
            "transmitted_bytes": 0,
            "queued_records": 0,
            "queued_batches": found["behind"],
            "buffered_records": 0,
            "buffered_batches": 0,
            "memory": 0,
            "num_encode_errors": 0,
            "num_transport_errors": found["errors"],
            "total_processed_input_records": rows,
            "total_processed_steps": max(found["transaction"], 0),
        },
        "fatal_error": found["last_error"] if failed else None,
        "health": health(found),
        "encode_errors": [],
        "transport_errors": _errors([found["last_error"]] if found["last_error"] else []),
    }


def health(found: Mapping[str, Any]) -> dict[str, Any]:
    """`ConnectorHealth` of the reference."""
    bad = found["status"] in ("failed", "retrying", "stalled")
    why = found.get("stalled") or found["last_error"]
    return {"status": "Unhealthy" if bad else "Healthy", "description": why if bad else None}


def _errors(messages: Any) -> list[dict[str, Any]]:
    at = datetime.now(UTC).isoformat()
    return [
        {"timestamp": at, "index": index, "tag": None, "message": message}
        for index, message in enumerate(messages)
    ]
