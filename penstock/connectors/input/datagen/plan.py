"""A plan: one sequence of rows, the part of the configuration that says how many and how fast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.connectors.config import Section


@dataclass(frozen=True)
class Plan:
    """Without a limit it never ends, without a rate it goes as fast as it is taken."""

    fields: Mapping[str, Any]
    rate: int | None = None
    limit: int | None = None
    chunk: int | None = None
    """Rows that are made, and with a rate handed out, together."""

    @classmethod
    def of(cls, section: Section) -> Plan:
        section.only(["fields", "limit", "rate", "worker_chunk_size"])
        return cls(
            fields=section.get("fields", dict, {}),
            rate=section.count("rate", least=1),
            limit=section.count("limit"),
            chunk=section.count("worker_chunk_size", least=1),
        )

    @cached_property
    def fingerprint(self) -> str:
        """The same for plans that make the same rows: how fast and in which portions does not matter."""
        content = json.dumps([self.fields, self.limit], sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    def left(self, made: int) -> int | None:
        """How many rows are still to come after `made` of them; None if there is no end."""
        return None if self.limit is None else max(self.limit - made, 0)


@dataclass(frozen=True)
class Pace:
    """A plan's rate, counted from the moment and the row at which this process went on with the plan.

    So a plan that goes on after a restart does not hurry to make up for the time in between.
    """

    rate: int
    started: float
    made: int

    def due(self, now: float, chunk: int | None, limit: int | None) -> int:
        """How many rows the plan should have made by now: whole chunks, if it has such, and the last part."""
        rows = self.made + int((now - self.started) * self.rate)
        if limit is not None and rows >= limit:
            return limit
        return rows if chunk is None else rows - rows % chunk
