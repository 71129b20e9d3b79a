"""Penstock keeps SQL views up to date on Apache Spark, transaction by transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._version import __version__
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline, check, diff, explain, repair_catalog, restore_checkpoint

_PIPELINE = ("Pipeline", "check", "diff", "explain", "repair_catalog", "restore_checkpoint")

__all__ = [
    "PenstockError",
    "Pipeline",
    "__version__",
    "check",
    "diff",
    "explain",
    "repair_catalog",
    "restore_checkpoint",
]


def __getattr__(name: str) -> Any:
    # Spark is imported when it is first needed: `penstock --help` and Spark's own workers do not need it.
    if name in _PIPELINE:
        from penstock import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
