"""Metrics of a pipeline, for Prometheus and as JSON. docs/reference/metrics.md explains each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.service.runner.deployment import Deployment
from penstock.service.runner.statistics import resident_bytes


@dataclass(frozen=True)
class Metric:
    """One value of one series."""

    name: str
    kind: str
    help: str
    value: float
    labels: Mapping[str, str]

    def plain(self) -> dict[str, Any]:
        return {"key": self.name, "type": self.kind, "labels": dict(self.labels), "value": self.value}


def measured(deployment: Deployment) -> list[Metric]:
    """All metrics of a pipeline."""
    common = {"pipeline": deployment.order.name}
    return [
        Metric(f"penstock_{name}", kind, text, float(value), {**common, **labels})
        for name, kind, text, value, labels in _values(deployment)
    ]


def _values(deployment: Deployment) -> Iterator[tuple[str, str, str, float, dict[str, str]]]:
    if deployment.status == "Standby":
        if (standby := deployment.pipeline.stats().get("standby")) is not None:
            yield from _standby(standby)
        return
    stats = deployment.running().stats()
    yield "transactions_total", "counter", "Transactions that ended.", stats["transactions"], {}
    for which, milliseconds in stats["latency_ms"].items():
        if milliseconds is not None:
            text = "Time that recent transactions took."
            yield "transaction_seconds", "gauge", text, milliseconds / 1000, {"which": which}
    for name, table in stats["tables"].items():
        yield "table_rows_in_total", "counter", "Rows read into a table.", table["rows_in"], {"table": name}
        yield "table_rows", "gauge", "Rows of a table.", table["rows"], {"table": name}
        yield (
            "table_errors_total",
            "counter",
            "Deletions that found nothing.",
            table["errors"],
            {"table": name},
        )
    for name, view in stats["views"].items():
        yield "view_changes_total", "counter", "Rows of changes of a view.", view["changes"], {"view": name}
        yield "view_rows", "gauge", "Rows of a view.", view["rows"], {"view": name}
    for name, found in stats["inputs"].items():
        labels = {"connector": name}
        yield "input_rows_total", "counter", "Rows that a connector gave.", found["rows"], labels
        yield "input_queued_rows", "gauge", "Rows that wait.", found["queued"], labels
        yield "input_bad_records_total", "counter", "Records put aside.", found["bad_records"], labels
        yield "input_errors_total", "counter", "Attempts that failed.", found["errors"], labels
        for partition, at in found.get("partitions", {}).items():
            text = "Messages that a partition has and that were not taken in."
            yield "input_lag", "gauge", text, at["lag"], {**labels, "partition": partition}
    for name, found in stats["outputs"].items():
        labels = {"connector": name}
        yield "output_rows_total", "counter", "Rows that an output got.", found["rows"], labels
        yield "output_behind", "gauge", "Transactions that wait for an output.", found["behind"], labels
        yield "output_errors_total", "counter", "Attempts that failed.", found["errors"], labels
        text = "1 if an output gets nothing though there is something for it."
        yield "output_stalled", "gauge", text, found["stalled"] is not None, labels
    bytes_ = sum(trace["bytes"] for trace in stats["traces"].values())
    yield "state_bytes", "gauge", "Bytes of the state on disk.", bytes_, {}
    yield (
        "checkpoint_transaction",
        "gauge",
        "The last in a checkpoint.",
        stats["checkpoint"]["transaction"],
        {},
    )
    if stats["sync"] is not None:
        yield from _synced(stats["sync"])
    if stats["hosts"] is not None:
        yield from _on_hosts(stats["hosts"])
    yield "memory_bytes", "gauge", "Memory of the runner, the JVM and workers.", resident_bytes(), {}


def _on_hosts(stats: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float, dict[str, str]]]:
    for host in stats["hosts"]:
        labels = {"host": str(host["index"])}
        yield "host_in", "gauge", "1 if a host gives signs of life.", host["in"], labels
        text = "Rows that a host took in."
        yield "host_processed_records_total", "counter", text, host["processed_records"], labels
        yield "host_state_bytes", "gauge", "Bytes of the state on a host.", host["bytes"], labels
        for how, times in host["reads"].items():
            text = "How often tasks on a host came to a batch in which way."
            yield "host_reads_total", "counter", text, times, {**labels, "how": how}


def _standby(stats: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float, dict[str, str]]]:
    if stats["transaction"] is not None:
        yield "standby_transaction", "gauge", "The last that a standby has.", stats["transaction"], {}
        text = "Age of the checkpoint that a standby has."
        yield "standby_checkpoint_age_seconds", "gauge", text, stats["age_seconds"], {}
    failed = stats["error"] is not None
    yield "standby_failing", "gauge", "1 if the last attempt to fetch failed.", failed, {}
    yield "memory_bytes", "gauge", "Memory of the runner, the JVM and workers.", resident_bytes(), {}


def _synced(stats: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float, dict[str, str]]]:
    yield "sync_pushes_total", "counter", "Checkpoints that were pushed.", stats["pushes"], {}
    yield "sync_failures_total", "counter", "Pushes that failed.", stats["failures"], {}
    yield "sync_bytes_total", "counter", "Bytes that were pushed.", stats["bytes"], {}
    failing = stats["failure"] is not None
    yield "sync_failing", "gauge", "1 if the last push failed.", failing, {}


def as_prometheus(metrics: Sequence[Metric]) -> str:
    """The text format of Prometheus."""
    lines: list[str] = []
    described: set[str] = set()
    for metric in sorted(metrics, key=lambda metric: metric.name):
        if metric.name not in described:
            described.add(metric.name)
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in metric.labels.items())
        lines.append(f"{metric.name}{{{labels}}} {_number(metric.value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """All digits: a counter that is rounded moves in jumps.

    >>> _number(12345678.0), _number(0.25)
    ('12345678', '0.25')
    """
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
