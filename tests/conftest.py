"""What all tests share. Nothing here starts Spark: pipelines of one process share one session."""

from __future__ import annotations

import os
import signal

import hypothesis
import pytest

from tests.oracle.history import seed_of_run

# Tests run many plans a few times each: code that is compiled once suits them better than code that is
# compiled again and again to run fast. Saves a fifth of the time. One process runs hundreds of views: the
# 48 MB that such code then gets by default are full after a few of them, and everything else is interpreted.
# Heaps are small, and processors are few: collecting garbage with several threads takes more than it gives.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
)

# A shell that runs something in the background has it ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.servers", "tests.kafka"]

# How long one example takes says more about the machine than about the code.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="histories of 20 transactions instead of 8")


def _minutes(item: pytest.Item) -> float:
    """How long a test takes, roughly: `slow` may say so."""
    slow = item.get_closest_marker("slow")
    return 0 if slow is None else float(slow.kwargs.get("minutes", 1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (`-n`) the tests of a file stay together, and the longest go first, alone."""
    items.sort(key=_minutes, reverse=True)
    for item in items:
        if not any(item.iter_markers("slow")) and not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def pytest_report_header() -> str:
    """Name the seed of the random histories, so that any run can be repeated."""
    return f"penstock seed: {seed_of_run()} (set PENSTOCK_SEED to change it)"
