"""What is wrong with a program: each error says where it is and what was expected.

In the programs below, the caret `^` stands before the character that the error must point at, and is removed.
"""

from __future__ import annotations

import pytest

from penstock.errors import ProgramError
from penstock.sql import parse_program

SUPPORTED = "CREATE TABLE, CREATE VIEW, CREATE MATERIALIZED VIEW, CREATE LOCAL VIEW or CREATE INDEX"
USE_VIEW = "a table's rows come from its inputs; write CREATE VIEW name AS SELECT ..."
NO_ROWS = "rows come from connectors and from Pipeline.insert, not from the program"
CLAUSES = "WITH (...), USING, OPTIONS (...), TBLPROPERTIES (...), COMMENT or ';'"
FORMATS = "csv, json, parquet, or a connector in WITH ('connectors' = '[...]')"
CYCLE = "CREATE VIEW b AS SELECT * FROM c;\nCREATE VIEW c AS SELECT * FROM A"
SUBQUERY = "(WITH inner_one AS (SELECT 1) SELECT * FROM inner_one)"
T = "CREATE TABLE t (a INT);\n"
KNOWN = "materialized, append_only, skip_unused_columns, connectors, comment"

STATEMENTS = [
    ("^", f"the program is empty; expected {SUPPORTED}"),
    ("^-- nothing\n/* here */ ;", f"the program is empty; expected {SUPPORTED}"),
    (
        "^SELECT 1",
        f"expected {SUPPORTED}, found 'SELECT'; give the query a name: CREATE VIEW name AS SELECT ...",
    ),
    (
        f"{T}^INSERT INTO t VALUES (1)",
        f"expected {SUPPORTED}, found 'INSERT'; {NO_ROWS}",
    ),
    (
        f"{T}  ^DROP TABLE t",
        f"expected {SUPPORTED}, found 'DROP'; remove the CREATE statement from the program instead",
    ),
    ("^SHOW TABLES", f"expected {SUPPORTED}, found 'SHOW'"),
    ("^foo", f"expected {SUPPORTED}, found 'foo'"),
    ("CREATE ^FUNCTION f() RETURN 1", f"expected {SUPPORTED}, found CREATE FUNCTION"),
    ("CREATE^", f"expected {SUPPORTED}, found CREATE and nothing after it"),
    (
        "CREATE ^TEMPORARY VIEW v AS SELECT 1",
        "temporary views are not supported; write CREATE LOCAL VIEW for one that only views read",
    ),
    (
        "CREATE ^EXTERNAL TABLE t (a INT)",
        "external tables are not supported; write CREATE TABLE with a connector",
    ),
    ("CREATE TABLE ^(a INT)", "expected the name of the table, found '('"),
    ("CREATE LOCAL VIEW ^'v' AS SELECT 1", "expected the name of the local view, found ''v''"),
    ("CREATE TABLE ^db.t (a INT)", "the name of a table has one part: expected 't' without a schema"),
    ("CREATE TABLE ^__penstock_clock (a INT)", "names that start with __penstock are reserved"),
    (f"{T}CREATE VIEW ^T AS SELECT 1", "duplicate name 'T': it is declared at line 1 already"),
    (f"{T}CREATE TABLE IF NOT EXISTS ^t (a INT)", "duplicate name 't': it is declared at line 1 already"),
    ("CREATE TABLE t (a STRING DEFAULT ^'x;\n)", "this string is never closed: expected '"),
    (f'{T}CREATE VIEW v AS SELECT "a", ^"b\\"', 'this string is never closed: expected "'),
    (f"{T}CREATE VIEW v AS SELECT ^`a FROM t", "this quoted name is never closed: expected `"),
    (f"{T}^/* /* */ CREATE VIEW v AS SELECT 1", "this comment is never closed: expected */"),
    (f"{T}CREATE VIEW v AS SELECT '--', r'\\', ^r'", "this string is never closed: expected '"),
    (f"{T}CREATE VIEW v AS SELECT ^x'0g'", "expected hexadecimal digits in this binary literal"),
]

TABLES = [
    ("CREATE TABLE t^", "expected ( and the columns of the table, found the end of the statement"),
    ("CREATE TABLE t (^)", "expected a column name, found ')'"),
    ("CREATE TABLE t (a INT, ^)", "expected a column name, found ')'"),
    (
        "CREATE TABLE t (a INT^",
        "expected NOT NULL, DEFAULT, PRIMARY KEY, COMMENT, ',' or ')', found the end of the statement",
    ),
    (
        "CREATE TABLE t (a INT ^b INT)",
        "expected NOT NULL, DEFAULT, PRIMARY KEY, COMMENT, ',' or ')', found 'b'",
    ),
    ("CREATE TABLE t (a INT, ^A STRING)", "duplicate column 'A'"),
    ("CREATE TABLE t (a INT DEFAULT ^)", "expected an expression after DEFAULT, found ')'"),
    ("CREATE TABLE t (a INT DEFAULT 1 ^DEFAULT 2)", "two DEFAULTs for column 'a'"),
    (
        "CREATE TABLE t (a INT ^CHECK (a > 0))",
        "CHECK is not supported in CREATE TABLE: filter the rows in a view",
    ),
    (
        "CREATE TABLE t (a INT, ^UNIQUE (a))",
        "UNIQUE is not supported in CREATE TABLE: declare the columns as PRIMARY KEY",
    ),
    (
        "CREATE TABLE t (a INT, CONSTRAINT c ^CHECK (a > 0))",
        "CHECK is not supported in CREATE TABLE: filter the rows in a view",
    ),
    (
        "CREATE TABLE t (a INT ^GENERATED ALWAYS AS (1))",
        "GENERATED is not supported in CREATE TABLE: compute the column in a view",
    ),
    (
        "CREATE TABLE t (amount INT, PRIMARY KEY (^amuont))",
        "unknown column 'amuont' in a key; did you mean 'amount'?",
    ),
    (
        "CREATE TABLE t (a INT, FOREIGN KEY (^zz) REFERENCES u)",
        "unknown column 'zz' in a key; known columns: a",
    ),
    (
        "CREATE TABLE t (a INT PRIMARY KEY, b INT ^PRIMARY KEY)",
        "the table has two primary keys; write PRIMARY KEY (a, b) for one of several columns",
    ),
    (
        "CREATE TABLE t (a INT PRIMARY KEY, b INT, ^PRIMARY KEY (b))",
        "the table has two primary keys; write PRIMARY KEY (a, b) for one of several columns",
    ),
    ("CREATE TABLE t (a INT, PRIMARY KEY (a, ^A))", "column 'a' is in the primary key twice"),
    ("CREATE TABLE t (a INT, PRIMARY KEY ^a)", "expected ( and key columns, found 'a'"),
    ("CREATE TABLE t (PRIMARY KEY (a))^", "the table has no columns"),
    (
        "CREATE TABLE t (^a MAP<INT, INT> PRIMARY KEY)",
        "column 'a' of type map<int,int> cannot be in a primary key: maps and variants have no equality",
    ),
    (
        "CREATE TABLE t ^AS SELECT 1",
        f"AS is not supported in CREATE TABLE: {USE_VIEW}",
    ),
    (
        "CREATE TABLE t (a INT) ^PARTITIONED BY (a)",
        "PARTITIONED is not supported in CREATE TABLE: Penstock lays out its own state; remove it",
    ),
    (
        "CREATE TABLE t (a INT) ^CREATE TABLE u (a INT)",
        f"expected {CLAUSES}, found 'CREATE'",
    ),
    (
        "CREATE TABLE t (a INT) USING ^delta",
        f"USING delta is not supported; expected USING {FORMATS}",
    ),
    ("CREATE TABLE t (a INT) USING csv ^USING csv", "USING is given twice"),
]

PROPERTIES = [
    (
        "CREATE TABLE t (a INT) WITH (^'materialised' = 'true')",
        "unknown property 'materialised'; did you mean 'materialized'?",
    ),
    (
        "CREATE TABLE t (a INT) WITH (^'x' = 'y')",
        f"unknown property 'x'; known properties of a table: {KNOWN}",
    ),
    (
        "CREATE TABLE t (a INT) WITH ('materialized' = '^yes')",
        "property 'materialized' is 'yes'; expected 'true' or 'false'",
    ),
    (
        "CREATE TABLE t (a INT) TBLPROPERTIES (append_only = ^1)",
        "property 'append_only' is '1'; expected 'true' or 'false'",
    ),
    (
        "CREATE TABLE t (a INT) WITH ('append_only' = 'true') WITH (^'append_only' = 'true')",
        "property 'append_only' is given twice",
    ),
    ("CREATE TABLE t (a INT) WITH (^)", "expected a property, such as 'append_only' = 'true', found ')'"),
    (
        "CREATE TABLE t (a INT) WITH ('append_only' = ^)",
        "expected the value of property 'append_only', a string, found ')'",
    ),
    (
        "CREATE TABLE t (a INT) WITH ('append_only' = 'true' 'materialized' ^= 'true')",
        "expected ',' and another property, or ')', found '='",
    ),
    (
        "CREATE TABLE t (a INT) ^'append_only'",
        f"expected {CLAUSES}, found ''append_only''",
    ),
    (
        "CREATE VIEW v WITH (^'append_only' = 'true') AS SELECT 1",
        "property 'append_only' is for tables only",
    ),
    (
        "CREATE VIEW v WITH (^'materialized' = 'true') AS SELECT 1",
        "property 'materialized' is for tables only (write CREATE MATERIALIZED VIEW)",
    ),
    (
        "CREATE VIEW v WITH (^'emit_final' = 'a') AS SELECT 1",
        "unknown property 'emit_final'; known properties of a view: connectors, comment",
    ),
]

VIEWS = [
    ("CREATE VIEW v ^SELECT 1", "expected AS and a query, found 'SELECT'"),
    ("CREATE VIEW v^", "expected AS and a query, found the end of the statement"),
    (
        "CREATE VIEW v AS^",
        "expected a query after AS, such as SELECT ... FROM ..., found the end of the statement",
    ),
    (
        "CREATE VIEW v AS ^INSERT INTO t VALUES (1)",
        "expected a query after AS, such as SELECT ... FROM ..., found 'INSERT'",
    ),
    ("CREATE VIEW v (a, ^A) AS SELECT 1, 2", "duplicate column 'A'"),
    (
        "CREATE VIEW v (a ^INT) AS SELECT 1",
        "expected ',' and another column, or ')' (a view's columns have names only, no types), found 'INT'",
    ),
    ("CREATE VIEW v AS SELECT ^(1", "this '(' is never closed"),
    ("CREATE VIEW v AS SELECT (1)^)", "')' closes nothing"),
    ("CREATE VIEW v AS SELECT (1^]", "']' closes nothing"),
    (
        "CREATE TABLE orders (a INT);\nCREATE VIEW v AS\n  SELECT *\n  FROM ^ordres o",
        "unknown table or view 'ordres'; did you mean 'orders'?",
    ),
    (
        f"{T}CREATE VIEW v AS SELECT * FROM t WHERE a IN (SELECT a FROM ^`zzz`)",
        "unknown table or view 'zzz'; known tables and views: t",
    ),
    ("CREATE VIEW v AS SELECT * FROM ^x", "unknown table or view 'x'; known tables and views: none"),
    (
        f"{T}CREATE VIEW v AS SELECT * FROM ^db.T",
        "unknown table or view 'db.T'; names have one part here: did you mean 't'?",
    ),
    (
        f"{T}CREATE VIEW v AS SELECT * FROM {SUBQUERY} JOIN ^inner_one",
        "unknown table or view 'inner_one'; known tables and views: t",
    ),
    (
        "CREATE VIEW v AS SELECT now FROM ^__penstock_clock",
        "unknown table or view '__penstock_clock'; known tables and views: none",
    ),
    (
        "^CREATE VIEW v AS SELECT * FROM V",
        "views read each other in a cycle: v -> v; expected no view to read itself",
    ),
    (
        f"{T}CREATE VIEW z AS SELECT * FROM c;\n^CREATE VIEW a AS SELECT * FROM t JOIN b;\n{CYCLE}",
        "views read each other in a cycle: a -> b -> c -> a; expected no view to read itself",
    ),
]


@pytest.mark.parametrize(("program", "message"), [*STATEMENTS, *TABLES, *PROPERTIES, *VIEWS])
def test_the_error_says_what_is_wrong_and_where(program: str, message: str) -> None:
    before, text = program.split("^")[0], program.replace("^", "", 1)
    with pytest.raises(ProgramError) as caught:
        parse_program(text)
    assert caught.value.message == message
    line, column = caught.value.line, caught.value.column
    assert (line, column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SELECT 1", "statement 1"),
        (f"{T};;\nCREATE VIEW v AS SELECT * FROM x", "statement 2, CREATE VIEW v"),
        (f"{T}CREATE LOCAL VIEW `a b` AS SELECT * FROM x", "statement 2, CREATE LOCAL VIEW `a b`"),
        (f"{T}CREATE MATERIALIZED VIEW v AS SELECT * FROM v", "statement 2, CREATE MATERIALIZED VIEW v"),
        (f"{T};;CREATE VIEW v AS SELECT 'abc", "statement 2"),
        (f"{T}'abc", "statement 2"),
    ],
)
def test_the_error_names_the_statement(text: str, statement: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_program(text)
    assert caught.value.statement == statement
    assert str(caught.value).endswith(f"(in {statement})")
