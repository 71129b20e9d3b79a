"""Where a group of replicas is, as the configuration says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.connectors.config import Section
from penstock.connectors.shard import FIELDS, place_of
from penstock.errors import ConnectorError, StateError
from penstock.shard.stores.place import PlaceConfig

LEASE_SECONDS = 10.0
"""A replica of which nothing is heard for so long does not lead any more."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True)
class GroupConfig:
    """One group of replicas in a place that all of them reach."""

    place: PlaceConfig
    name: str
    lease: float = LEASE_SECONDS
    generation: int | None = None
    """None: that which runs."""

    @classmethod
    def of(cls, given: Mapping[str, Any], pipeline: str) -> GroupConfig:
        """From the setting `group`; the group has the pipeline's name if it has none of its own.

        >>> GroupConfig.of({"uri": "/mnt/shared", "lease_seconds": 5}, "shop").name
        'shop'
        """
        try:
            section = Section.of("the setting group", given)
            section.only([*FIELDS, "lease_seconds", "generation"])
            lease = section.get("lease_seconds", float, LEASE_SECONDS)
            name = section.get("name", str, pipeline)
            generation = section.optional("generation", int)
            place = place_of(section)
        except ConnectorError as error:
            raise StateError(str(error)) from error
        if not lease >= 1:
            raise StateError(
                f"the setting group.lease_seconds is a number of at least 1, not {given['lease_seconds']!r}"
            )
        if generation is not None and generation < 0:
            raise StateError(f"the setting group.generation is a number of at least 0, not {generation}")
        if not _NAME.fullmatch(name):
            raise StateError(
                f"the setting group.name: expected letters, digits, '_', '-' and '.', found {name!r}; without"
                " that setting it is the name of the pipeline"
            )
        return cls(place, name, lease, generation)
