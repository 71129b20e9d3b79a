"""Which tables and views a query reads."""

from __future__ import annotations

import pytest

from penstock.sql import parse_program
from penstock.sql.relations import relations_read

TABLES = """
    CREATE TABLE Orders (id INT, items ARRAY<INT>);
    CREATE TABLE customers (id INT);
    CREATE TABLE z (id INT);
"""
RECURSIVE = "WITH RECURSIVE z (n) AS (SELECT id FROM orders UNION ALL SELECT n + 1 FROM z WHERE n < 9)"
BOTH = ("Orders", "customers")


def reads(query: str) -> tuple[str, ...]:
    return parse_program(f"{TABLES}\nCREATE VIEW v AS\n{query}").views[0].depends_on


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1", ()),
        ("VALUES (1), (2)", ()),
        ("SELECT * FROM range(10)", ()),
        ("SELECT * FROM VALUES (1) AS z (a)", ()),
        ("SELECT 'z', \"z\", z FROM (SELECT 1 AS z)", ()),
        ("SELECT * FROM orders z", ("Orders",)),
        ("SELECT * FROM `ORDERS` AS o", ("Orders",)),
        ("SELECT * FROM orders, customers", BOTH),
        ("SELECT * FROM customers c JOIN orders o ON c.id = o.id", ("customers", "Orders")),
        ("SELECT * FROM orders NATURAL JOIN customers", BOTH),
        ("SELECT * FROM orders o LEFT ANTI JOIN customers c USING (id)", BOTH),
        ("SELECT * FROM orders a JOIN orders b USING (id)", ("Orders",)),
        ("SELECT * FROM (orders CROSS JOIN customers)", BOTH),
        ("SELECT * FROM (SELECT * FROM (SELECT * FROM orders) a) b", ("Orders",)),
        ("(SELECT id FROM orders) UNION ALL (SELECT id FROM customers)", BOTH),
        (
            "SELECT id FROM orders INTERSECT SELECT id FROM customers EXCEPT ALL SELECT id FROM z",
            (*BOTH, "z"),
        ),
        ("SELECT id FROM orders MINUS SELECT id FROM customers", BOTH),
        ("SELECT * FROM orders WHERE id IN (SELECT id FROM customers)", BOTH),
        ("SELECT * FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.id = o.id)", BOTH),
        ("SELECT (SELECT max(id) FROM orders) + (SELECT max(id) FROM customers)", BOTH),
        ("SELECT CASE WHEN id > (SELECT avg(id) FROM orders) THEN 1 END FROM z", ("Orders", "z")),
        ("SELECT id FROM orders GROUP BY id HAVING id > (SELECT min(id) FROM customers)", BOTH),
        ("SELECT * FROM orders LATERAL VIEW OUTER explode(items) z AS item", ("Orders",)),
        ("SELECT * FROM orders, LATERAL explode(items) AS z (item)", ("Orders",)),
        ("SELECT * FROM orders o, LATERAL (SELECT * FROM customers c WHERE c.id = o.id)", BOTH),
        ("SELECT * FROM orders PIVOT (sum(id) FOR id IN (1, 2))", ("Orders",)),
        ("SELECT * FROM orders UNPIVOT (v FOR k IN (id))", ("Orders",)),
        ("SELECT /*+ BROADCAST(z) */ * FROM orders o", ("Orders",)),
        ("SELECT count(*) OVER w FROM orders WINDOW w AS (PARTITION BY id)", ("Orders",)),
        ("SELECT * FROM orders QUALIFY row_number() OVER (ORDER BY id) = 1", ("Orders",)),
        ("SELECT transform(items, z -> z + 1) FROM orders", ("Orders",)),
        ("FROM orders SELECT id", ("Orders",)),
        ("TABLE orders", ("Orders",)),
        ("FROM orders |> WHERE id > 1 |> JOIN customers USING (id) |> AGGREGATE count(*) GROUP BY id", BOTH),
        ("SELECT * FROM some_function(TABLE(orders))", ("Orders",)),
        # Common table expressions.
        ("WITH z AS (SELECT * FROM orders) SELECT * FROM z", ("Orders",)),
        ("WITH z AS (SELECT * FROM orders) SELECT * FROM Z JOIN customers USING (id)", BOTH),
        ("WITH a AS (SELECT * FROM orders), z AS (SELECT * FROM a) SELECT * FROM z", ("Orders",)),
        ("WITH z AS (SELECT * FROM z) SELECT * FROM z", ("z",)),
        ("WITH a AS (SELECT * FROM z), z AS (SELECT 1) SELECT * FROM a, z", ("z",)),
        (
            "SELECT * FROM (WITH z AS (SELECT * FROM orders) SELECT * FROM z) JOIN z USING (id)",
            ("Orders", "z"),
        ),
        ("WITH z AS (SELECT 1) SELECT * FROM orders WHERE id IN (SELECT * FROM z)", ("Orders",)),
        ("WITH z AS (WITH y AS (SELECT * FROM orders) SELECT * FROM y) SELECT * FROM z", ("Orders",)),
        (f"{RECURSIVE} SELECT * FROM z", ("Orders",)),
        ("SELECT * FROM orders UNION ALL (WITH z AS (SELECT 1) SELECT * FROM z)", ("Orders",)),
    ],
)
def test_relations(query: str, expected: tuple[str, ...]) -> None:
    assert reads(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # sqlglot cannot parse these; whether Spark can is for Spark to say.
        ("SELECT a b c FROM orders", ("Orders",)),
        ("SELECT ? ! x FROM orders, `customers` WHERE", BOTH),
        ("WITH z AS (SELECT 1) SELECT ? ! x FROM orders o", ("Orders",)),
        ("SELECT z.id, max(id) AS z, z(1) ? ! FROM orders", ("Orders",)),
        ("SELECT ? ! v FROM unknown_table", ()),
    ],
)
def test_a_query_that_cannot_be_parsed_is_searched_for_names(query: str, expected: tuple[str, ...]) -> None:
    assert not relations_read(query).certain
    assert reads(query) == expected


def test_places_are_offsets_in_the_query() -> None:
    query = "SELECT 'é😀'\nFROM orders o JOIN `c d`.e"
    assert [(query[r.offset :][:6], r.parts) for r in relations_read(query).relations] == [
        ("orders", ("orders",)),
        ("`c d`.", ("c d", "e")),
    ]


def test_a_very_deep_query() -> None:
    assert reads("SELECT " + " + ".join(["id"] * 3000) + " FROM orders") == ("Orders",)
    assert reads(" UNION ALL ".join(["SELECT id FROM orders"] * 1000)) == ("Orders",)
