"""Every case of tests/fixtures/sql over a random history: the view equals Spark's own result.

Cases share pipelines, because starting one costs more than adding a view to it. Run one case with
`pytest tests/test_oracle.py -k joins_left_join_on_two_keys`, one topic with `-k joins_`; a pipeline
then holds the selected cases only. With `--long` the histories are longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.oracle.cases import Case, load_cases, load_schema
from tests.oracle.domains import ROW_MAKERS
from tests.oracle.harness import check, table_schemas
from tests.oracle.history import History, random_history, seed_of_run

SCHEMA = load_schema()
CASES = load_cases()
CHUNK = 16
COMPARE_AFTER = (0, 1, 4, 5, 8)
COMPARE_LONG = (0, 1, 5, 10, 11, 15, 20)  # a table is empty after 5 of 8 transactions, and after 11 of 20


def _history(stream: int, transactions: int) -> History:
    tables = table_schemas(SCHEMA)
    return random_history(tables, ROW_MAKERS, seed=seed_of_run(), transactions=transactions, stream=stream)


def _chunk(case: Case) -> int:
    return CASES.index(case) // CHUNK


def _outcomes(cases: Sequence[Case], chunk: int, compare_after: Sequence[int]) -> dict[str, str]:
    """What went wrong, by view. If a pipeline fails as a whole, its halves run alone to find the culprits."""
    try:
        history = _history(chunk, compare_after[-1])
        return check(SCHEMA, cases, history, name="oracle", compare_after=compare_after)
    except Exception as error:
        if len(cases) == 1:
            return {cases[0].view: f"{type(error).__name__}: {error}\n{cases[0].statements}"}
        halves = cases[: len(cases) // 2], cases[len(cases) // 2 :]
        return _outcomes(halves[0], chunk, compare_after) | _outcomes(halves[1], chunk, compare_after)


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest) -> Callable[[Case], str | None]:
    """Runs a chunk when the first of its selected cases asks, and remembers the rest."""
    selected: dict[int, list[Case]] = {}
    for item in request.session.items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if isinstance(case, Case):
            selected.setdefault(_chunk(case), []).append(case)
    compare_after = COMPARE_LONG if request.config.getoption("--long") else COMPARE_AFTER
    done: dict[int, dict[str, str]] = {}

    def of(case: Case) -> str | None:
        chunk = _chunk(case)
        if chunk not in done:
            done[chunk] = _outcomes(selected[chunk], chunk, compare_after)
        return done[chunk].get(case.view)

    return of


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "case",
    # The cases of a pipeline run in one process.
    [pytest.param(c, id=c.view, marks=pytest.mark.xdist_group(f"oracle {_chunk(c)}")) for c in CASES],
)
def test_view_equals_recompute(case: Case, outcome: Callable[[Case], str | None]) -> None:
    problem = outcome(case)
    assert problem is None, problem
