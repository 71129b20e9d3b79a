"""The datagen connector: plans one after the other, each at its rate and up to its limit."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.connectors.config import Section
from penstock.connectors.input.datagen.chance import Origin
from penstock.connectors.input.datagen.generate import Batch, plan_generator
from penstock.connectors.input.datagen.plan import Pace, Plan
from penstock.connectors.input.datagen.text import TooMuchError
from penstock.connectors.interface import MAX_BATCH_ROWS, Input, Reject, Split
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.sql import Connector, Table

SOURCE = "datagen"

_REMEDY = "or start with an empty storage directory"


class DatagenInput(Input):
    """Hands out ranges of row indices; what the rows contain follows from the seed and the index.

    Its position is the seed, the number of rows handed out of each plan, and the fingerprint of each plan.
    """

    def __init__(
        self,
        name: str,
        table: str,
        plans: Sequence[Plan],
        seed: int | None = None,
        *,
        transaction_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._table = table
        self._plans = plans
        self._configured_seed = seed
        self._seed = secrets.randbits(63) if seed is None else seed
        self._transaction_size = transaction_size
        self._clock = clock
        self._made = [0] * len(plans)
        self._pace: Pace | None = None

    @classmethod
    def from_config(cls, connector: Connector, table: Table) -> Self:
        where = f"connector {connector.name}"
        config = Section.of(f"{where}: transport", connector.config["transport"]).section("config")
        config.only(["plan", "seed", "workers", "transaction_size"])
        config.count("workers")  # rows do not depend on who makes them; Spark's tasks share the splits
        sections = [
            Section.of(f"{config.path}.plan[{index}]", plan)
            for index, plan in enumerate(config.get("plan", list, [{}]))
        ]
        plans = [Plan.of(section) for section in sections]
        schema = _arrow_schema(where, table)
        for index, (plan, section) in enumerate(zip(plans, sections, strict=True)):
            origin = Origin(0, table.name, index)
            plan_generator(plan.fields, schema, origin, f"{section.path}.fields")  # refuses wrong settings
        return cls(
            connector.name,
            table.name,
            plans,
            config.count("seed"),
            transaction_size=config.count("transaction_size") or None,
        )

    def poll(self, max_rows: int) -> list[Split]:
        splits: list[Split] = []
        now = self._clock()
        left = min(max_rows, self._transaction_size or max_rows)
        while left > 0 and (current := self._current) is not None:
            rows = min(left, self._due(current, left, now))
            if rows == 0:
                break
            splits.extend(self._splits(current, rows))
            self._made[current] += rows
            left -= rows
            if self._current != current:
                self._pace = None
        return splits

    @property
    def ended(self) -> bool:
        return self._current is None

    @property
    def position(self) -> Any:
        return {"seed": self._seed, "rows": list(self._made), "plans": self._fingerprints}

    def has_reached(self, position: Any, earlier: Any) -> bool:
        pairs = zip(position["rows"], earlier["rows"], strict=False)
        return position["seed"] == earlier["seed"] and all(now >= then for now, then in pairs)

    def seek(self, position: Any) -> None:
        try:
            seed, made, plans = position["seed"], position["rows"], position["plans"]
        except (KeyError, TypeError) as error:
            raise ConnectorError(
                f"connector {self.name}: {position!r} is not a position of a datagen connector; restore the"
                f" connector that it came from, {_REMEDY}"
            ) from error
        self._same_seed(seed)
        self._same_plans(plans)
        self._seed, self._made, self._pace = seed, list(made), None

    @property
    def _current(self) -> int | None:
        """The first plan that is not finished."""
        unfinished = (index for index, plan in enumerate(self._plans) if plan.left(self._made[index]) != 0)
        return next(unfinished, None)

    @property
    def _fingerprints(self) -> list[str]:
        return [plan.fingerprint for plan in self._plans]

    def _same_seed(self, seed: int) -> None:
        if self._configured_seed not in (None, seed):
            raise ConnectorError(
                f"connector {self.name}: the seed is {self._configured_seed}, and was {seed} when the stored"
                f" rows were made; set 'seed' to {seed} again, {_REMEDY}"
            )

    def _same_plans(self, plans: Sequence[str]) -> None:
        where = f"connector {self.name}"
        if len(plans) != len(self._plans):
            raise ConnectorError(
                f"{where}: there are {len(self._plans)} plans, and were {len(plans)} when the stored rows"
                f" were made; restore 'plan', {_REMEDY}"
            )
        for index, (stored, own) in enumerate(zip(plans, self._fingerprints, strict=True)):
            if stored != own:
                raise ConnectorError(
                    f"{where}: plan[{index}] has the fingerprint {own}, and had {stored} when the stored rows"
                    f" were made; restore its 'fields' and 'limit', {_REMEDY}"
                )

    def _due(self, index: int, most: int, now: float) -> int:
        """How many more rows the plan should have made by now."""
        plan, made = self._plans[index], self._made[index]
        if plan.rate is None:
            left = plan.left(made)
            return most if left is None else left
        if self._pace is None:
            self._pace = Pace(plan.rate, now, made)
        return max(self._pace.due(now, plan.chunk, plan.limit) - made, 0)

    def _splits(self, index: int, rows: int) -> list[Split]:
        plan, first = self._plans[index], self._made[index]
        end, chunk = first + rows, plan.chunk or MAX_BATCH_ROWS
        payload = {"seed": self._seed, "table": self._table, "plan": index, "fields": plan.fields}
        return [
            Split(SOURCE, {**payload, "start": start, "rows": (count := min(chunk, end - start))}, count)
            for start in range(first, end, chunk)
        ]


def read_datagen(
    payload: Mapping[str, Any], schema: pa.Schema, _defaults: Mapping[str, Any], _reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The rows of a range of indices."""
    plan = payload["plan"]
    make = _generator(json.dumps(payload["fields"]), schema, Origin(payload["seed"], payload["table"], plan))
    end = payload["start"] + payload["rows"]
    try:
        for start in range(payload["start"], end, MAX_BATCH_ROWS):
            yield from _batches(make, start, min(start + MAX_BATCH_ROWS, end))
    except (pa.ArrowException, TooMuchError) as error:
        raise ConnectorError(
            f"datagen plan[{plan}] of table {payload['table']} cannot make rows {payload['start']} to"
            f" {end - 1}: {error}"
        ) from error


def _batches(make: Batch, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows in one batch, or in smaller ones if they are so long that one could not hold them."""
    try:
        batch = make(np.arange(start, end, dtype=np.uint64))
    except TooMuchError:
        if end - start == 1:
            raise
        middle = (start + end) // 2
        yield from _batches(make, start, middle)
        yield from _batches(make, middle, end)
    else:
        yield batch


@lru_cache(maxsize=64)
def _generator(fields: str, schema: pa.Schema, origin: Origin) -> Batch:
    """The generator of a plan, kept for the next split: a task's process reads many of them."""
    return plan_generator(json.loads(fields), schema, origin, f"datagen plan[{origin.plan}].fields")


def _arrow_schema(where: str, table: Table) -> pa.Schema:
    for field in table.schema:
        try:
            to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkTypeError as error:
            raise ConnectorError(
                f"{where}: datagen cannot fill column '{field.name}' of type"
                f" {field.dataType.simpleString().upper()}; use another type and cast it in a view"
            ) from error
    return to_arrow_schema(table.schema, timezone="UTC")
