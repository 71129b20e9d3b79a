"""What all tests share. Nothing here starts Spark: pipelines of one process share one session."""

from __future__ import annotations

import os

import hypothesis

from tests.oracle.history import seed_of_run

# Tests run many plans a few times each: code that is compiled once suits them better than code that is
# compiled again and again to run fast. Saves a fifth of the time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

pytest_plugins = ["tests.servers"]

# How long one example takes says more about the machine than about the code.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


def pytest_report_header() -> str:
    """Name the seed of the random histories, so that any run can be repeated."""
    return f"penstock seed: {seed_of_run()} (set PENSTOCK_SEED to change it)"
