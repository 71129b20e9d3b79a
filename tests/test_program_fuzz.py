"""Whatever the text, a program is read or refused with a ProgramError that has a place in it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProgramError
from penstock.sql import parse_program
from penstock.sql.clock import replace_now
from penstock.sql.source import Source

PROGRAM = r"""
CREATE TABLE Orders (id BIGINT NOT NULL DEFAULT 1L,
  `a b` ARRAY<STRUCT<x: INT, y: MAP<STRING, DECIMAL(10, 2)>>>,
  at TIMESTAMP DEFAULT now() COMMENT 'it''s; "fine"', span INTERVAL DAY TO SECOND, PRIMARY KEY (id))
  USING csv OPTIONS (path 'a.csv', header true) TBLPROPERTIES ('append_only' = 'true', my.key = r'\d');
/* one /* two; */ */ CREATE TABLE u (id INT PRIMARY KEY)
  WITH ('connectors' = '[{"transport": {"name": "x"}}]');
CREATE LOCAL VIEW v (p, q) AS
  WITH c AS (SELECT * FROM orders) SELECT c.id, x'1F' FROM c JOIN u USING (id) -- end;
;
CREATE MATERIALIZED VIEW w COMMENT 'text' AS SELECT p, current_date FROM v WHERE q > (SELECT max(id) FROM U)
"""
PIECES = [PROGRAM[token.start : token.end] for token in Source(PROGRAM).tokens()]
NOISE = [
    *"'\"`()<>[]{};,.-\\/*$@?é😀\x00",
    "--",
    "/*",
    "*/",
    "''",
    "r'",
    "1L",
    "|>",
    "SHOW",
    "BEGIN",
    "\n",
    " ",
]


def check(text: str) -> None:
    try:
        program = parse_program(text)
    except ProgramError as error:
        check_place(text, error)
        return
    for view in program.views:
        assert view.query in text
        replaced, _ = replace_now(view.query)
        assert replaced.count("\n") == view.query.count("\n")


def check_place(text: str, error: ProgramError) -> None:
    assert error.line is not None
    assert error.column is not None
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *NOISE]), max_size=30))
def test_any_pieces(pieces: list[str]) -> None:
    check(" ".join(["CREATE", *pieces]))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(PROGRAM)), st.integers(0, 12), st.sampled_from([*NOISE, *PIECES, ""]))
def test_a_program_with_one_change(start: int, length: int, inserted: str) -> None:
    check(PROGRAM[:start] + inserted + PROGRAM[start + length :])


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    check(text)


def test_the_program_itself_is_right() -> None:
    assert [view.name for view in parse_program(PROGRAM).views] == ["v", "w"]
