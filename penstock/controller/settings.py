"""The settings of fault tolerance, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.controller.checkpoints import INTERVAL_SECONDS, RETENTION, Policy
from penstock.errors import StateError

_KNOWN = ("checkpoint_interval_secs", "retention", "verify")
_VERIFY = ("lazy", "eager")


def fault_tolerance(config: Mapping[str, Any]) -> Policy:
    """What the setting `fault_tolerance` says.

    >>> fault_tolerance({"checkpoint_interval_secs": None, "verify": "eager"})
    Policy(interval_s=None, retention=2, eager=True)
    """
    for key in config:
        if key not in _KNOWN:
            raise StateError(f"unknown setting fault_tolerance.{key}; known: {', '.join(_KNOWN)}")
    interval = config.get("checkpoint_interval_secs", INTERVAL_SECONDS)
    if interval is not None and (not _is_number(interval, int | float) or interval <= 0):
        raise StateError(
            "the setting fault_tolerance.checkpoint_interval_secs is a number of seconds above 0, or null for"
            f" no checkpoints but those that are asked for, not {interval!r}"
        )
    retention = config.get("retention", RETENTION)
    if not _is_number(retention, int) or retention < 1:
        raise StateError(
            f"the setting fault_tolerance.retention is a number of at least 1, not {retention!r}"
        )
    verify = config.get("verify", "lazy")
    if verify not in _VERIFY:
        raise StateError(f"the setting fault_tolerance.verify is one of {', '.join(_VERIFY)}, not {verify!r}")
    return Policy(None if interval is None else float(interval), retention, verify == "eager")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
