"""The settings of fault tolerance and of the object store, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.controller.checkpoints import INTERVAL_SECONDS, RETENTION, Policy
from penstock.errors import StateError
from penstock.sync.config import SyncConfig

_KNOWN = ("checkpoint_interval_secs", "retention", "verify")
_VERIFY = ("lazy", "eager")

HELD_FOR_EVER = (
    "outputs get only what was pushed, and no checkpoint is taken by the clock: set"
    " fault_tolerance.checkpoint_interval_secs, or hold_outputs to false"
)


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


def object_store(config: Mapping[str, Any]) -> SyncConfig | None:
    """What the setting `storage` says of an object store; None if there is none.

    >>> object_store({"backend": {"name": "file", "config": {"sync": {"bucket": "b"}}}}).bucket
    'b'
    """
    found: Any = config
    path = "storage"
    for known in (("backend",), ("name", "config"), ("sync",)):
        if not isinstance(found, Mapping):
            raise StateError(f"the setting {path} must be a dict, not {found!r}")
        for key in found:
            if key not in known:
                raise StateError(f"unknown setting {path}.{key}; known: {', '.join(known)}")
        found = found.get(known[-1])
        path = f"{path}.{known[-1]}"
        if found is None:
            return None
    return SyncConfig.of(found)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
