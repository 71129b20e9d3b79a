"""The settings of a pipeline, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.controller.checkpoints import INTERVAL_SECONDS, RETENTION, Policy
from penstock.controller.work import LIMITS
from penstock.errors import StateError
from penstock.hosts.config import ClusterConfig
from penstock.sync.config import SyncConfig

_TYPES = {
    "workers": int,
    "spark": dict,
    "fault_tolerance": dict,
    "storage": dict,
    "group": dict,
    "hosts": int,
    "coordinator": dict,
    **dict.fromkeys(LIMITS, int),
}
_MAY_BE_ZERO = ("min_batch_size_records", "max_buffering_delay_usecs", "max_gathering_delay_usecs")

_KNOWN = ("checkpoint_interval_secs", "retention", "verify")
_VERIFY = ("lazy", "eager")

HELD_FOR_EVER = (
    "outputs get only what was pushed, and no checkpoint is taken by the clock: set"
    " fault_tolerance.checkpoint_interval_secs, or hold_outputs to false"
)


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pipeline, if each of them is known and of its type."""
    for key, value in config.items():
        if key not in _TYPES:
            raise StateError(f"unknown setting {key!r}; known: {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
            raise StateError(f"the setting {key!r} must be of type {_TYPES[key].__name__}, not {value!r}")
        if isinstance(value, int) and value < (0 if key in _MAY_BE_ZERO else 1):
            raise StateError(f"the setting {key!r} must not be {value}; it is too small")
    return dict(config)


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


def several_hosts(config: Mapping[str, Any], keeps_state: bool) -> ClusterConfig | None:
    """What the settings say of several hosts; None: it is one machine. `keeps_state`: it has a directory."""
    if "hosts" not in config:
        if "coordinator" in config:
            raise StateError("the setting 'coordinator' is for pipelines on several hosts: set 'hosts' too")
        return None
    if not keeps_state:
        raise StateError(
            "a pipeline on several hosts keeps its journal in a directory: give storage=... or --storage DIR"
        )
    if "group" in config:
        raise StateError("the setting 'group' cannot be used on several hosts yet; remove it")
    return ClusterConfig.of(config["hosts"], config.get("coordinator", {}))
