"""What all tests share. Nothing here starts Spark: pipelines of one process share one session."""

from __future__ import annotations

import hypothesis

from tests.oracle.history import seed_of_run

pytest_plugins = ["tests.servers"]

# How long one example takes says more about the machine than about the code.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


def pytest_report_header() -> str:
    """Name the seed of the random histories, so that any run can be repeated."""
    return f"penstock seed: {seed_of_run()} (set PENSTOCK_SEED to change it)"
