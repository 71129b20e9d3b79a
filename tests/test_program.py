"""What a program declares: tables, views, their properties and their order."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from penstock.sql import Column, Program, Table, View, ViewKind, parse_program


def table(text: str) -> Table:
    (only,) = parse_program(text).tables
    return only


def view(text: str) -> View:
    """The last view of a program over the tables t and u."""
    program = parse_program(f"CREATE TABLE t (a INT, b STRING); CREATE TABLE u (a INT);\n{text}")
    return program.views[-1]


def names(program: Program) -> tuple[list[str], list[str]]:
    return [t.name for t in program.tables], [v.name for v in program.views]


def test_a_program_with_everything() -> None:
    program = parse_program("""
        -- orders; and customers
        CREATE TABLE Orders (
            id BIGINT PRIMARY KEY,
            customer INT NOT NULL DEFAULT 0,  -- a semicolon; in a comment
            note STRING DEFAULT 'a;b'
        ) WITH ('append_only' = 'true', 'owner.team' = 'shop');
        /* a comment; /* with another; */ inside */
        CREATE LOCAL VIEW recent AS SELECT * FROM ORDERS WHERE note <> ';';
        CREATE MATERIALIZED VIEW counts (customer, n) AS
            SELECT customer, count(*) FROM recent GROUP BY customer -- the end
        ;;
    """)
    assert names(program) == (["Orders"], ["recent", "counts"])
    orders = program.tables[0]
    assert orders.columns == (
        Column("id", LongType(), nullable=False),
        Column("customer", IntegerType(), nullable=False, default="0"),
        Column("note", StringType(), default="'a;b'"),
    )
    assert (orders.primary_key, orders.append_only, orders.materialized) == (("id",), True, True)
    assert orders.properties == {"append_only": "true", "owner.team": "shop"}
    assert (orders.line, orders.column) == (3, 9)
    recent, counts = program.views
    assert (recent.kind, recent.query) == (ViewKind.LOCAL, "SELECT * FROM ORDERS WHERE note <> ';'")
    assert recent.depends_on == ("Orders",)
    assert (counts.kind, counts.columns, counts.depends_on) == (
        ViewKind.MATERIALIZED,
        ("customer", "n"),
        ("recent",),
    )
    assert counts.query == "SELECT customer, count(*) FROM recent GROUP BY customer"


def test_a_program_can_be_pickled_compared_and_hashed() -> None:
    text = "CREATE TABLE t (a INT) WITH ('materialized' = 'true'); CREATE VIEW v AS SELECT * FROM t"
    program = parse_program(text)
    assert pickle.loads(pickle.dumps(program)) == program == parse_program(text)
    assert hash(program) == hash(parse_program(text))


def test_the_schema_has_the_key_as_not_null() -> None:
    keyed = table("CREATE TABLE t (a INT, B STRING, c INT NOT NULL, PRIMARY KEY (b, A))")
    assert keyed.primary_key == ("B", "a")
    assert keyed.schema == StructType(
        [
            StructField("a", IntegerType(), False),
            StructField("B", StringType(), False),
            StructField("c", IntegerType(), False),
        ]
    )


@pytest.mark.parametrize(
    "key",
    [
        "a INT PRIMARY KEY, b INT",
        "a INT NOT NULL PRIMARY KEY, b INT",
        "a INT PRIMARY\n KEY NOT NULL, b INT",
        "a INT, b INT, PRIMARY KEY (a)",
        "a INT, b INT, PRIMARY /* the */ KEY (`A`)",
        "a INT, b INT, CONSTRAINT pk PRIMARY KEY (a) NOT ENFORCED RELY",
        "a INT PRIMARY KEY, b INT REFERENCES u (a)",
        "a INT PRIMARY KEY, b INT FOREIGN KEY REFERENCES u (a)",
        "a INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES u",
    ],
)
def test_spellings_of_a_primary_key(key: str) -> None:
    keyed = table(f"CREATE TABLE t ({key})")
    assert keyed.primary_key == ("a",)
    assert [c.nullable for c in keyed.columns] == [False, True]


@pytest.mark.parametrize(
    ("column", "default", "nullable"),
    [
        ("a INT DEFAULT 1", "1", True),
        ("a INT DEFAULT -1 NOT NULL", "-1", False),
        ("a INT NOT NULL DEFAULT 1", "1", False),
        ("a STRING DEFAULT concat('x', ')', \"y\") COMMENT 'z'", "concat('x', ')', \"y\")", True),
        ("a BOOLEAN DEFAULT 1 IS NOT NULL", "1 IS NOT NULL", True),
        ("a BOOLEAN DEFAULT 1 IS NOT NULL NOT NULL", "1 IS NOT NULL", False),
        ("a INT DEFAULT NULL", "NULL", True),
        ("a INT NULL", None, True),
        ("a ARRAY<INT> DEFAULT array(1, 2)[0]", "array(1, 2)[0]", True),
        ("a INT DEFAULT (1 + 2) PRIMARY KEY", "(1 + 2)", False),
        ("a LONG DEFAULT 1L", "1L", True),
    ],
)
def test_defaults_keep_their_source_text(column: str, default: str | None, nullable: bool) -> None:
    (only,) = table(f"CREATE TABLE t ({column})").columns
    assert (only.default, only.nullable) == (default, nullable)


@pytest.mark.parametrize(
    "clauses",
    [
        "WITH ('append_only' = 'true', 'materialized' = 'false')",
        "WITH ('append_only' = 'TRUE') WITH ('materialized' = 'False')",
        "TBLPROPERTIES ('append_only' = 'true', 'materialized' = 'false')",
        "TBLPROPERTIES (append_only = true, materialized false)",
        "USING parquet OPTIONS ('append_only' 'true') TBLPROPERTIES ('materialized' = 'false')",
        "USING csv OPTIONS (append_only 'true', materialized 'false') COMMENT 'text'",
    ],
)
def test_spellings_of_properties(clauses: str) -> None:
    found = table(f"CREATE TABLE t (a INT) {clauses}")
    assert (found.append_only, found.materialized) == (True, False)


def test_properties_have_defaults() -> None:
    found = table("CREATE TABLE t (a INT)")
    assert (found.append_only, found.materialized, found.properties, found.connectors) == (
        False,
        True,
        {},
        (),
    )


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it''s'", "it's"),
        ("'it\\'s'", "it's"),
        ("'a' 'b'", "ab"),
        ("'a' \"b\"", "ab"),
        ('"say ""hi"""', 'say "hi"'),
        (r"'a\tb\\c\u00e9\101\%\q'", "a\tb\\c\u00e9A\\%q"),
        (r"r'a\tb'", r"a\tb"),
        ("42", "42"),
        ("1.5", "1.5"),
    ],
)
def test_strings_have_the_value_that_spark_gives_them(literal: str, value: str) -> None:
    assert table(f"CREATE TABLE t (a INT) WITH (my.key = {literal})").properties == {"my.key": value}


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("CREATE VIEW v AS SELECT 1", ViewKind.PLAIN),
        ("create or replace view v as select 1", ViewKind.PLAIN),
        ("CREATE VIEW IF NOT EXISTS v AS SELECT 1", ViewKind.PLAIN),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", ViewKind.MATERIALIZED),
        ("CREATE LOCAL VIEW v AS SELECT 1", ViewKind.LOCAL),
        ("CREATE VIEW v COMMENT 'one' TBLPROPERTIES ('a.b' = 'c') AS SELECT 1", ViewKind.PLAIN),
        ("CREATE VIEW v WITH ('a.b' = 'c') AS WITH x AS (SELECT 1) SELECT * FROM x", ViewKind.PLAIN),
    ],
)
def test_kinds_of_views(statement: str, kind: ViewKind) -> None:
    assert view(statement).kind is kind


def test_a_table_may_be_created_if_it_does_not_exist() -> None:
    assert table("CREATE TABLE IF NOT EXISTS t (a INT)").name == "t"
    assert table("CREATE OR REPLACE TABLE t (a INT)").name == "t"


def test_names_in_backticks() -> None:
    program = parse_program(
        "CREATE TABLE `my ``t` (`a b` INT); CREATE VIEW `v;1` (`x y`) AS SELECT * FROM `MY ``T`"
    )
    assert names(program) == (["my `t"], ["v;1"])
    assert program.tables[0].columns[0].name == "a b"
    assert program.views[0].columns == ("x y",)
    assert program.views[0].depends_on == ("my `t",)


@pytest.mark.parametrize(
    "word", ["date", "timestamp", "order", "table", "key", "comment", "primary", "check", "constraint"]
)
def test_a_keyword_can_name_a_column(word: str) -> None:
    assert table(f"CREATE TABLE t ({word} INT, b INT)").columns[0].name == word


def test_views_come_after_what_they_read_and_else_in_their_own_order() -> None:
    program = parse_program("""
        CREATE VIEW top AS SELECT * FROM left_side JOIN right_side USING (a);
        CREATE VIEW right_side AS SELECT * FROM t;
        CREATE TABLE t (a INT);
        CREATE VIEW left_side AS SELECT * FROM right_side;
        CREATE VIEW other AS SELECT * FROM t;
    """)
    assert names(program)[1] == ["right_side", "left_side", "top", "other"]


def test_a_long_chain_of_views() -> None:
    links = [f"CREATE VIEW v{n} AS SELECT * FROM v{n - 1};" for n in range(1500, 0, -1)]
    program = parse_program("CREATE TABLE v0 (a INT);" + "".join(links))
    assert [v.name for v in program.views] == [f"v{n}" for n in range(1, 1501)]


def test_a_place_in_a_query_is_found_in_the_program() -> None:
    text = "CREATE TABLE t (a INT);\r\n  CREATE VIEW v AS\r\n    SELECT a,\r\n      a + 'é😀' AS b FROM t"
    (found,) = parse_program(text).views
    assert (found.line, found.column) == (2, 3)
    assert (found.query_line, found.query_column) == (3, 5)
    assert found.locate(1, 1) == (3, 5)
    assert found.locate(1, 8) == (3, 12)
    assert found.locate(2, 7) == (4, 7)
    assert text.split("\n")[3][6:] == found.query.split("\n")[1][6:]
