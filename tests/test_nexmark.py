"""The Nexmark queries as views over tables that also lose and change rows."""

from __future__ import annotations

from tests.oracle.cases import FIXTURES, load_queries, load_schema
from tests.oracle.harness import assert_equal, check, table_schemas
from tests.oracle.history import Sizes, random_history, seed_of_run
from tests.oracle.nexmark_data import ROW_MAKERS

DIRECTORY = FIXTURES / "nexmark"


def test_all_queries_over_a_random_history() -> None:
    schema = load_schema(DIRECTORY)
    history = random_history(
        table_schemas(schema), ROW_MAKERS, seed=seed_of_run(), transactions=5, sizes=Sizes(load=60, rows=8)
    )
    assert_equal(check(schema, load_queries(DIRECTORY), history, name="nexmark", compare_after=(2, 5)))
