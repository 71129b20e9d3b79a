"""All 22 TPC-H queries as views, kept right while orders come and go."""

from __future__ import annotations

from random import Random

from tests.oracle.cases import FIXTURES, load_queries, load_schema
from tests.oracle.harness import assert_equal, trial
from tests.oracle.history import seed_of_run
from tests.oracle.tpch_data import load, refresh

DIRECTORY = FIXTURES / "tpch"


def test_all_queries_through_two_refreshes() -> None:
    seed = seed_of_run()
    rng = Random(seed)
    with trial(load_schema(DIRECTORY), load_queries(DIRECTORY), name="tpch", seed=seed) as run:
        run.apply(load(rng))
        run.compare()
        for number in range(2):
            run.apply(refresh(rng, run.model, number))
            run.compare()
        assert_equal(run.failures)
