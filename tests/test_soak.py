"""Many transactions of random sizes: the views stay right and the traces stay small in number."""

from __future__ import annotations

import math
import os
from random import Random
from typing import Any

import pytest

from tests.oracle import soak
from tests.oracle.harness import assert_equal, trial
from tests.oracle.history import seed_of_run

TRANSACTIONS = int(os.environ.get("PENSTOCK_SOAK", "2000"))
COMPARISONS = 4


def _assert_logarithmic(stats: dict[str, Any]) -> None:
    """A trace of n rows may have about log(n) batches, however many transactions wrote to it."""
    for name, trace in stats["traces"].items():
        limit = 6 + 4 * math.log2(trace["rows"] + 2)
        assert trace["batches"] <= limit, (
            f"trace {name} has {trace['batches']} batches for {trace['rows']} rows"
        )


@pytest.mark.slow(minutes=12)
@pytest.mark.timeout(4 * 3600)
def test_thousands_of_transactions() -> None:
    seed = seed_of_run()
    rng = Random(seed)
    every = max(1, TRANSACTIONS // COMPARISONS)
    with trial(soak.SCHEMA, soak.VIEWS, name="soak", seed=seed) as run:
        for number in range(1, TRANSACTIONS + 1):
            run.apply(soak.transaction(rng, run.model))
            if number % every == 0 or number == TRANSACTIONS:
                run.compare()
                assert_equal(run.failures)
                _assert_logarithmic(run.pipeline.stats())
