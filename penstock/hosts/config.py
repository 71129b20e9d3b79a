"""The settings of a pipeline that say on which hosts it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import StateError


@dataclass(frozen=True)
class ClusterConfig:
    """The settings `hosts` and `coordinator`."""

    hosts: int
    address: str = "127.0.0.1"
    port: int = 0
    master: str | None = None
    """Of a Spark cluster that is there already; None: the coordinator has one of its own."""

    @classmethod
    def of(cls, hosts: int, coordinator: Mapping[str, Any]) -> ClusterConfig:
        """What they say.

        >>> ClusterConfig.of(2, {"address": "10.0.0.1"})
        ClusterConfig(hosts=2, address='10.0.0.1', port=0, master=None)
        """
        for key, value in coordinator.items():
            if key not in ("address", "port", "master"):
                raise StateError(f"unknown setting coordinator.{key}; known: address, port, master")
            if not isinstance(value, int if key == "port" else str) or isinstance(value, bool):
                raise StateError(f"the setting coordinator.{key} cannot be {value!r}")
        if not 0 <= coordinator.get("port", 0) < 1 << 16:
            raise StateError(f"the setting coordinator.port cannot be {coordinator['port']!r}")
        if hosts < 2:
            raise StateError(
                f"the setting hosts is a number of at least 2, not {hosts!r}; leave it out for one machine"
            )
        return cls(hosts, **coordinator)
