"""Calls of now() and its relatives read the time of the transaction."""

from __future__ import annotations

import pytest

from penstock.sql.clock import replace_now

NOW = "(SELECT now FROM __penstock_clock)"
TODAY = "(SELECT CAST(now AS DATE) FROM __penstock_clock)"
LOCAL = "(SELECT CAST(now AS TIMESTAMP_NTZ) FROM __penstock_clock)"
UNIX = "(SELECT unix_timestamp(now) FROM __penstock_clock)"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT now()", f"SELECT {NOW}"),
        ("SELECT NOW ( ) AS now", f"SELECT {NOW} AS now"),
        ("SELECT current_timestamp", f"SELECT {NOW}"),
        ("SELECT CURRENT_TIMESTAMP(), a", f"SELECT {NOW}, a"),
        ("SELECT current_date, current_date()", f"SELECT {TODAY}, {TODAY}"),
        ("SELECT curdate() + 1", f"SELECT {TODAY} + 1"),
        ("SELECT localtimestamp()", f"SELECT {LOCAL}"),
        ("SELECT unix_timestamp() - t", f"SELECT {UNIX} - t"),
        ("SELECT * FROM t WHERE a > now() AND b < now()", f"SELECT * FROM t WHERE a > {NOW} AND b < {NOW}"),
        ("SELECT date_diff(current_date, d) FROM t", f"SELECT date_diff({TODAY}, d) FROM t"),
        ("SELECT year(now()) FROM t GROUP BY year(now())", f"SELECT year({NOW}) FROM t GROUP BY year({NOW})"),
        ("SELECT CASE WHEN a THEN current_date ELSE d END", f"SELECT CASE WHEN a THEN {TODAY} ELSE d END"),
        ("SELECT extract(YEAR FROM current_date)", f"SELECT extract(YEAR FROM {TODAY})"),
        ("WHERE d BETWEEN current_date AND current_date", f"WHERE d BETWEEN {TODAY} AND {TODAY}"),
        ("SELECT a,\n now(\n)\n, b", f"SELECT a,\n {NOW}\n\n, b"),
        ("SELECT 'é😀', now() -- now()", f"SELECT 'é😀', {NOW} -- now()"),
        ("SELECT DISTINCT current_date x", f"SELECT DISTINCT {TODAY} x"),
        ("SELECT -current_date", f"SELECT -{TODAY}"),
    ],
)
def test_calls_are_replaced(query: str, expected: str) -> None:
    assert replace_now(query) == (expected, True)
    assert expected.count("\n") == query.count("\n")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "SELECT now FROM t",
        "SELECT `now`(), `current_date` FROM t",
        "SELECT 'now()', \"current_date\"",
        "SELECT t.current_date, t.now FROM t",
        "SELECT current_date.x FROM t current_date",
        "SELECT a AS current_date, b current_timestamp, 1 current_timestamp, f(x) current_date FROM t",
        "SELECT unix_timestamp(a), unix_timestamp(a, 'yyyy') FROM t",
        "SELECT curdate, unix_timestamp, localtimestamp FROM t",
        "SELECT now(1) FROM t",
        "SELECT 1 -- now()\n/* current_date */",
        "WITH now AS (SELECT 1) SELECT * FROM now",
        "SELECT from_utc_timestamp(a, 'UTC')",
    ],
)
def test_everything_else_stays(query: str) -> None:
    assert replace_now(query) == (query, False)
