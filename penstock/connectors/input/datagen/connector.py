"""The datagen connector: plans one after the other, each at its rate and up to its limit."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.connectors.config import Section
from penstock.connectors.input.datagen.generate import Batch, plan_generator
from penstock.connectors.interface import MAX_BATCH_ROWS, Input, Split
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = "datagen"


@dataclass(frozen=True)
class Plan:
    """One sequence of rows; without a limit it never ends, without a rate it goes as fast as it is taken."""

    fields: Mapping[str, Any]
    rate: int | None
    limit: int | None
    chunk: int

    @classmethod
    def of(cls, section: Section) -> Plan:
        section.only(["rate", "limit", "fields", "worker_chunk_size"])
        return cls(
            fields=section.get("fields", dict, {}),
            rate=section.count("rate", least=1),
            limit=section.count("limit"),
            chunk=section.count("worker_chunk_size", least=1) or MAX_BATCH_ROWS,
        )


class DatagenInput(Input):
    """Hands out ranges of row indices; what the rows contain follows from the seed and the index."""

    def __init__(
        self,
        name: str,
        plans: Sequence[Plan],
        seed: int,
        *,
        transaction_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._plans = plans
        self._seed = seed
        self._transaction_size = transaction_size
        self._clock = clock
        self._plan = 0
        self._made = 0
        self._started: float | None = None

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(["plan", "seed", "workers", "transaction_size"])
        config.count("workers")  # rows do not depend on who makes them; Spark's tasks share the splits
        seed = config.count("seed")
        sections = [
            Section.of(f"{config.path}.plan[{index}]", plan)
            for index, plan in enumerate(config.get("plan", list, [{}]))
        ]
        plans = [Plan.of(section) for section in sections]
        schema = to_arrow_schema(table.schema, timezone="UTC")
        for index, (plan, section) in enumerate(zip(plans, sections, strict=True)):
            plan_generator(plan.fields, schema, 0, index, f"{section.path}.fields")  # refuses wrong settings
        return cls(
            connector.name,
            plans,
            secrets.randbits(63) if seed is None else seed,
            transaction_size=config.count("transaction_size") or None,
        )

    def poll(self, max_rows: int) -> list[Split]:
        splits: list[Split] = []
        left = min(max_rows, self._transaction_size or max_rows)
        while left > 0 and not self.ended:
            plan = self._plans[self._plan]
            rows = min(left, self._due(plan))
            splits.extend(self._splits(plan, rows))
            self._made += rows
            left -= rows
            if plan.limit is not None and self._made >= plan.limit:
                self._plan, self._made, self._started = self._plan + 1, 0, None
            elif rows == 0:
                break
        return splits

    @property
    def ended(self) -> bool:
        return self._plan >= len(self._plans)

    def _due(self, plan: Plan) -> int:
        """How many more rows the plan should have made by now."""
        now = self._clock()
        if self._started is None:
            self._started = now
        due = MAX_BATCH_ROWS if plan.rate is None else int((now - self._started) * plan.rate) - self._made
        if plan.rate is None and plan.limit is not None:
            due = plan.limit - self._made
        return due if plan.limit is None else min(due, plan.limit - self._made)

    def _splits(self, plan: Plan, rows: int) -> list[Split]:
        made = []
        for start in range(self._made, self._made + rows, plan.chunk):
            count = min(plan.chunk, self._made + rows - start)
            payload = {
                "seed": self._seed,
                "plan": self._plan,
                "start": start,
                "rows": count,
                "fields": plan.fields,
            }
            made.append(Split(SOURCE, payload, count))
        return made


def read_datagen(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of a range of indices."""
    plan = payload["plan"]
    make = _generator(json.dumps(payload["fields"]), schema, payload["seed"], plan)
    end = payload["start"] + payload["rows"]
    try:
        for start in range(payload["start"], end, MAX_BATCH_ROWS):
            yield make(np.arange(start, min(start + MAX_BATCH_ROWS, end), dtype=np.uint64))
    except pa.ArrowException as error:
        raise ConnectorError(
            f"datagen plan[{plan}] cannot make rows {payload['start']} to {end}: {error}"
        ) from error


@lru_cache(maxsize=64)
def _generator(fields: str, schema: pa.Schema, seed: int, plan: int) -> Batch:
    """The generator of a plan, kept for the next split: a task's process reads many of them."""
    return plan_generator(json.loads(fields), schema, seed, plan, f"datagen plan[{plan}].fields")
