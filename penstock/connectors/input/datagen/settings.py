"""The settings of one generated field, with the names of the reference API's RngFieldSettings."""

from __future__ import annotations

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
        scale = section.get("scale", float, 1.0)
        nulls = section.count("null_percentage") or 0
        if nulls > 100:
            raise ConnectorError(f"{path}.null_percentage: expected 0 to 100, found {nulls}")
        exponent = section.get("e", float, 1.0)
        if exponent <= 0:
            raise ConnectorError(f"{path}.e: expected a number above 0, found {exponent}")
        return cls(
            path=path,
            strategy=section.choice("strategy", [*NUMERIC, *STRATEGIES], "increment"),
            range=_range(section),
            scale=int(scale) if scale.is_integer() else scale,
            values=section.optional("values", list),
            null_percentage=nulls,
            exponent=exponent,
            fields=section.get("fields", dict, {}),
            key=section.get("key", dict, {}),
            value=section.get("value", dict, {}),
        )


def _range(section: Section) -> tuple[Any, Any] | None:
    bounds = section.optional("range", list)
    if bounds is None:
        return None
    if len(bounds) != 2:
        raise ConnectorError(f"{section.path}.range: expected a list of two bounds, found {bounds!r}")
    return bounds[0], bounds[1]
