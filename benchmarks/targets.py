"""The figures Penstock is to reach, computed from the results of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.results import MIB, Result, Timings

GROWTH = 4
"""How many times the orders in the second part, which shows whether cost follows the change or the state."""


@dataclass(frozen=True)
class Target:
    """One figure; `value` is None where a system it needs was not run or gave no timings."""

    name: str
    value: float | None
    limit: float
    at_least: bool
    unit: str = ""

    @property
    def reached(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def judge(results: list[Result], orders: int) -> list[Target]:
    """All targets, in the order in which they matter."""
    found = {(result.system, result.orders): result for result in results if result.timings is not None}
    return list(_targets(found, orders))


def _targets(found: dict[tuple[str, int], Result], orders: int) -> Iterator[Target]:
    grown = GROWTH * orders

    def median(system: str, size: int) -> float | None:
        return _timing(found.get((system, size)), lambda timings: timings.median)

    for peer, title in {
        "spark-streaming": "Structured Streaming",
        "spark-recompute": "full recompute",
    }.items():
        ratio = _ratio(median(peer, orders), median("penstock", orders))
        yield Target(f"transaction: {title} / Penstock", ratio, 4, at_least=True, unit="x")
    # beside durable Flink there is no fixed figure at the first size: as near as Spark's own floor allows
    ratio = _ratio(median("flink-durable", grown), median("penstock", grown))
    yield Target(
        f"transaction, {grown:,} orders: durable Flink / Penstock", ratio, 1, at_least=True, unit="x"
    )
    ratio = _ratio(median("penstock", grown), median("penstock", orders))
    yield Target(f"transaction: {grown:,} / {orders:,} orders", ratio, 1.3, at_least=False, unit="x")
    for size in (orders, grown):
        p95 = _timing(found.get(("penstock", size)), lambda timings: timings.p95)
        ratio = _ratio(p95, median("penstock", size))
        yield Target(f"transaction, {size:,} orders: p95 / median", ratio, 3, at_least=False, unit="x")
    penstock = found.get(("penstock", orders))
    rate = penstock.bulk_rate if penstock else None
    changes = next((result.bulk_changes for result in found.values() if result.orders == orders), 0)
    yield Target(f"bulk: transactions of {changes:,} changes", rate, 90_000, at_least=True, unit=" changes/s")
    once = _timing(found.get(("spark-recompute", orders)), lambda timings: timings.figures["read_and_query"])
    for system, how in {"penstock": "insert", "penstock-files": "file_input"}.items():
        load = _timing(found.get((system, orders)), lambda timings: timings.load)
        ratio = _ratio(load, once)
        yield Target(
            f"first load by {how} / Spark reading and querying once", ratio, 3, at_least=False, unit="x"
        )
    big = found.get(("penstock", grown))
    python = big.memory.python / MIB if big else None
    yield Target(f"driver and Python workers, {grown:,} orders", python, 1_536, at_least=False, unit=" MiB")


def _timing(result: Result | None, choose: Callable[[Timings], float]) -> float | None:
    return None if result is None or result.timings is None else choose(result.timings)


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under
