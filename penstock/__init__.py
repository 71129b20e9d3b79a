"""Penstock keeps SQL views up to date on Apache Spark, transaction by transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._version import __version__
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.programs import check, diff, explain
    from penstock.pipeline import Pipeline, repair_catalog, restore_checkpoint

_FROM_PIPELINE = ("Pipeline", "repair_catalog", "restore_checkpoint")
_FROM_PROGRAMS = ("check", "diff", "explain")

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
    if name in _FROM_PIPELINE:
        from penstock import pipeline

        return getattr(pipeline, name)
    if name in _FROM_PROGRAMS:
        from penstock.engine import programs

        return getattr(programs, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
