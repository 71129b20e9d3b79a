"""What a stand-in answers in place of a pipeline: the forms of the runner, with made-up content.

Of the table `orders` with the connector `orders_file` and the view `by_region`; nothing else is known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

SCHEMA = {
    "inputs": [
        {
            "name": "orders",
            "case_sensitive": False,
            "materialized": True,
            "primary_key": ["id"],
            "fields": [
                {"name": "id", "columntype": {"type": "BIGINT", "nullable": False}},
                {
                    "name": "amount",
                    "columntype": {"type": "DECIMAL", "precision": 12, "scale": 2, "nullable": True},
                },
            ],
        }
    ],
    "outputs": [
        {
            "name": "by_region",
            "case_sensitive": False,
            "materialized": True,
            "fields": [{"name": "region", "columntype": {"type": "VARCHAR", "nullable": True}}],
        }
    ],
}


@dataclass
class Answer:
    """A status, and a body: bytes as they are, an iterator as a stream, anything else as JSON."""

    status: int
    body: Any
    kind: str = "application/json"


def refusal(status: int, code: str, message: str, details: Any = None) -> Answer:
    return Answer(status, {"message": message, "error_code": code, "details": details})


@dataclass
class StandInPipeline:
    """A pipeline that only remembers what it was asked for."""

    name: str = ""
    paused_connector: bool = False
    transaction: int | None = None
    transactions: int = 0
    checkpoints: list[str | None] = field(default_factory=list)
    synced: int = 0
    asked_for_token: int = 0
    bytes_in: int = 0

    def get(self, path: str, query: dict[str, str]) -> Answer | None:
        match path.strip("/").split("/"):
            case ["metrics"] if query.get("format") == "json":
                labels = {"pipeline": self.name}
                metric = {"key": "stand_in", "type": "gauge", "labels": labels, "value": 1}
                return Answer(200, [metric])
            case ["metrics"]:
                return Answer(200, f'stand_in{{pipeline="{self.name}"}} 1\n'.encode(), "text/plain")
            case ["query"] if "sleeps" in query.get("sql", ""):
                time.sleep(30)
                return Answer(200, b"")
            case ["query"]:
                return _answer(query.get("sql", ""), query.get("format", "text"))
            case ["completion_status"]:
                return self._completion(query["token"])
            case ["checkpoint_status"]:
                failed = next((n for n, label in enumerate(self.checkpoints, 1) if label == "fails"), None)
                failure = failed and {"sequence_number": failed, "error": "the disk is full"}
                done = [n for n, label in enumerate(self.checkpoints, 1) if label != "fails"]
                return Answer(200, {"success": max(done, default=None), "failure": failure})
            case ["checkpoint", "sync_status"]:
                done = _checkpoint(1, None)["uuid"] if self.synced else None
                return Answer(200, {"success": done, "periodic": None, "failure": None})
            case ["checkpoints", "remote"]:
                return Answer(
                    200, [{**_checkpoint(1, None), "at": "2024-01-01T00:00:00+00:00"}] * self.synced
                )
            case ["checkpoints"]:
                found = [label for label in self.checkpoints if label != "fails"]
                return Answer(200, [_checkpoint(number, label) for number, label in enumerate(found, 1)])
            case ["tables", "orders", "connectors", "orders_file", "stats"]:
                return Answer(200, self.input())
            case ["views", "by_region", "connectors", "out", "stats"]:
                return Answer(200, OUTPUT)
            case [kind, _, "connectors", name, "stats"]:
                code = "UnknownInputEndpoint" if kind == "tables" else "UnknownOutputEndpoint"
                return refusal(404, code, f"there is no connector {name}")
        return None

    def post(self, path: str, query: dict[str, str], body: bytes, *, paused: bool) -> Answer | None:
        match path.strip("/").split("/"):
            case ["ingress", "nowhere"]:
                return refusal(404, "UnknownInputStream", "there is no table nowhere")
            case ["ingress", _] if paused and query.get("force") != "true":
                return refusal(400, "PipelinePaused", "the pipeline is paused")
            case ["ingress", _] if b"reject" in body:
                said = "line 2 of what was pushed to orders: expected BIGINT (and 2 more)"
                return refusal(400, "ParseErrors", said, {"errors": [said], "num_errors": 1})
            case ["egress", "nowhere"]:
                return refusal(404, "UnknownOutputStream", "there is no view nowhere")
            case ["egress", _]:
                return Answer(200, _changes(snapshot=query.get("send_snapshot") == "true"))
            case ["start_transaction"] if self.transaction is not None:
                return refusal(409, "TransactionInProgress", "a transaction is open")
            case ["start_transaction"]:
                self.transactions += 1
                self.transaction = self.transactions
                return Answer(200, {"transaction_id": self.transaction})
            case ["commit_transaction" | "rollback_transaction"] if self.transaction is None:
                return refusal(409, "NoTransactionInProgress", "no transaction is open")
            case ["commit_transaction"]:
                self.transaction = None
                return Answer(200, None)
            case ["rollback_transaction"]:
                number, self.transaction = self.transaction, None
                return Answer(200, {"transaction_id": number})
            case ["checkpoint", "sync"]:
                self.synced += 1
                return Answer(202, {"checkpoint_uuid": _checkpoint(1, None)["uuid"], "incarnation_uuid": "i"})
            case ["checkpoint"]:
                self.checkpoints.append(query.get("name"))
                return Answer(
                    200, {"checkpoint_sequence_number": len(self.checkpoints), "incarnation_uuid": "i"}
                )
            case ["tables", "orders", "connectors", "orders_file", "start" | "pause" as action]:
                self.paused_connector = action == "pause"
                return Answer(200, None)
            case ["tables", _, "connectors", name, _]:
                return refusal(404, "UnknownInputEndpoint", f"there is no connector {name}")
        return None

    def stats(self, state: str) -> dict[str, Any]:
        """`ControllerStatus`, as far as anyone looks at it."""
        is_open = self.transaction is not None
        return {
            "global_metrics": {
                "state": state,
                "transaction_status": "TransactionInProgress" if is_open else "NoTransaction",
                "transaction_id": self.transaction or 0,
                "transaction_records": 0 if is_open else None,
                "rss_bytes": 123 << 20,
                "storage_bytes": 5000,
                "total_input_records": 1234,
                "total_processed_records": 1234,
                "total_completed_steps": 7,
                "buffered_input_records": 0,
                "pipeline_complete": False,
            },
            "inputs": [self.input()],
            "outputs": [OUTPUT],
        }

    def input(self) -> dict[str, Any]:
        return {
            "endpoint_name": "orders.orders_file",
            "config": {"stream": "orders"},
            "metrics": {
                "total_records": 1234,
                "buffered_records": 0,
                "num_parse_errors": 1,
                "num_transport_errors": 0,
                "end_of_input": False,
            },
            "fatal_error": None,
            "health": {"status": "Healthy", "description": None},
            "parse_errors": [{"timestamp": "", "index": 0, "tag": None, "message": "line 9 is no JSON"}],
            "transport_errors": [],
            "paused": self.paused_connector,
        }

    def _completion(self, token: str) -> Answer:
        if token != "a-token":
            return refusal(400, "InvalidCompletionToken", "that is no completion token")
        self.asked_for_token += 1
        if self.asked_for_token == 1:
            return Answer(202, {"status": "inprogress", "step": None})
        return Answer(200, {"status": "complete", "step": 8})


OUTPUT = {
    "endpoint_name": "by_region.out",
    "config": {"stream": "by_region"},
    "metrics": {"transmitted_records": 55, "queued_batches": 0, "num_transport_errors": 2},
    "fatal_error": None,
    "health": {"status": "Unhealthy", "description": "the disk is full"},
    "encode_errors": [],
    "transport_errors": [],
}


def _answer(sql: str, form: str) -> Answer:
    if "slowly" in sql:
        time.sleep(30)
    if "wrong" in sql:
        return refusal(400, "AdHocQueryError", "there is no column wrong", {"error": "no column"})
    from penstock.service.runner.answers import FORMS  # most stand-ins are never asked

    kind, made = FORMS[form]
    return Answer(200, made(_rows(sql)), kind)


def _rows(sql: str) -> Any:
    import pyarrow as pa

    if "many" in sql:
        return pa.table({"n": pa.array(range(2500), pa.int64())})
    if "wide" in sql:
        return pa.table({f"column_{n}": [n] for n in range(60)})
    rows = pa.table(
        {
            "region": ["north", "south[/b]", None],
            "orders": pa.array([12, 3, 0], pa.int64()),
            "total": pa.array([Decimal("1.50"), Decimal("20.00"), None], pa.decimal128(12, 2)),
        }
    )
    return rows.slice(0, 0) if "nothing" in sql else rows


def _changes(*, snapshot: bool) -> Iterator[bytes]:
    yield _chunk(0)
    number = 1
    if snapshot:
        yield _chunk(number, snapshot=True, json_data=[{"insert": {"region": "north", "orders": 11}}])
        number += 1
    for count in range(1000):
        changes = [
            {"delete": {"region": "north", "orders": count}},
            {"insert": {"region": "north", "orders": count + 1}},
        ]
        yield _chunk(number + count, json_data=changes)
        time.sleep(0.1)


def _chunk(number: int, *, snapshot: bool = False, **content: Any) -> bytes:
    return json.dumps({"sequence_number": number, "snapshot": snapshot, **content}).encode() + b"\n"


def _checkpoint(number: int, label: str | None) -> dict[str, Any]:
    return {
        "uuid": f"00000000-0000-0000-0000-00000000000{number}",
        "identifier": label,
        "fingerprint": 1,
        "size": 5000,
        "steps": number,
        "processed_records": 1234,
    }
