"""The SQL that Penstock promises to keep right, item by item: each has a case with that name."""

from __future__ import annotations

import pytest

from tests.oracle.cases import load_cases

PROMISED = """
filter, projection, string functions, math functions, date functions, conditional functions, array functions,
map functions, struct functions, json functions, CASE, casts, try_cast,
inner join, left join, right join, full join, cross join, semi join, anti join, natural join, join USING,
self-join, join on several keys, join on expressions, join with an extra condition, join on inequality,
null-safe join, GROUP BY with expressions, GROUP BY ordinals, GROUP BY ALL, GROUP BY ROLLUP, GROUP BY CUBE,
GROUP BY GROUPING SETS, HAVING,
count, sum, avg, min and max, stddev and variance, count distinct, sum distinct, several distincts,
min_by and max_by, collect_list, collect_set, percentile, percentile_approx, median, approx_count_distinct,
bool_and and bool_or, FILTER clauses, global aggregate over empty input, DISTINCT,
UNION, UNION ALL, INTERSECT, INTERSECT ALL, EXCEPT, EXCEPT ALL,
IN subquery, NOT IN subquery with NULLs, EXISTS, NOT EXISTS, EXISTS inside OR, correlated scalar subquery,
uncorrelated scalar subquery, row_number over partitions, rank, dense_rank, percent_rank, ntile, lag and lead,
running sum, framed sum over ROWS, framed sum over RANGE, first_value, sum over everything, QUALIFY,
ORDER BY with LIMIT, ORDER BY with LIMIT and OFFSET, LATERAL VIEW explode, LATERAL VIEW OUTER, explode,
posexplode, inline, stack, LATERAL join, PIVOT, UNPIVOT, CTE, CTE used more than once, recursive CTE, VALUES,
views over views over views, all column types, NULLs in a group key, NaN and -0.0 as keys
"""
ITEMS = [item.strip() for item in PROMISED.split(",")]
NAMES = [case.name for case in load_cases()]


@pytest.mark.parametrize("item", ITEMS)
def test_item_has_a_case(item: str) -> None:
    assert any(item in name for name in NAMES)
