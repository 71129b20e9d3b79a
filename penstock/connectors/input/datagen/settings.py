"""The settings of one generated field, with the names of the reference API's RngFieldSettings."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connectors.config import Section
from penstock.connectors.input.datagen.words import STRATEGIES
from penstock.errors import ConnectorError

NUMERIC = ("increment", "uniform", "zipf")

_FIELDS = ["strategy", "range", "scale", "values", "null_percentage", "e", "fields", "key", "value"]


@dataclass(frozen=True)
class FieldSettings:
    """How the values of one field are made."""

    path: str
    strategy: str
    range: tuple[Any, Any] | None
    scale: int | float
    values: list[Any] | None
    null_percentage: int
    exponent: float
    fields: Mapping[str, Any]
    key: Mapping[str, Any]
    value: Mapping[str, Any]

    @classmethod
    def of(cls, path: str, config: Any) -> FieldSettings:
        section = Section.of(path, config)
        section.only(_FIELDS)
        nulls = section.count("null_percentage") or 0
        if nulls > 100:
            raise ConnectorError(f"{path}.null_percentage: expected 0 to 100, found {nulls}")
        exponent = section.get("e", float, 1.0)
        if not 0 < exponent < math.inf:
            raise ConnectorError(f"{path}.e: expected a number above 0, found {exponent}")
        return cls(
            path=path,
            strategy=_strategy(section),
            range=_range(section),
            scale=_scale(section),
            values=section.optional("values", list),
            null_percentage=nulls,
            exponent=exponent,
            fields=section.get("fields", dict, {}),
            key=section.get("key", dict, {}),
            value=section.get("value", dict, {}),
        )

    def nested(self, name: str) -> Mapping[str, Any]:
        """The settings of what is inside: `fields`, `key` or `value`."""
        return {"fields": self.fields, "key": self.key, "value": self.value}[name]


def _strategy(section: Section) -> str:
    known = [*NUMERIC, *STRATEGIES]
    name = section.get("strategy", str, "increment")
    if name in known:
        return name
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
    raise ConnectorError(f"{section.path}.strategy: expected a strategy, found {name!r}; {hint}")


def _scale(section: Section) -> int | float:
    scale = section.values.get("scale")
    if type(scale) is int:
        return scale  # exactly, however large
    number = section.get("scale", float, 1.0)
    if not math.isfinite(number):
        raise ConnectorError(f"{section.path}.scale: expected a number, found {number}")
    return int(number) if number.is_integer() else number


def _range(section: Section) -> tuple[Any, Any] | None:
    bounds = section.optional("range", list)
    if bounds is None:
        return None
    if len(bounds) != 2:
        raise ConnectorError(f"{section.path}.range: expected a list of two bounds, found {bounds!r}")
    return bounds[0], bounds[1]
