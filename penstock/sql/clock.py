"""The time of a transaction: calls of now() and its relatives read it from a relation of one row.

Spark would put the time of the machine into the plan. A transaction has a time of its own, which is
journaled, so that a replay sees the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.source import Kind, Source, Token

CLOCK = "__penstock_clock"

_VALUES = {
    "now": "now",
    "current_timestamp": "now",
    "current_date": "CAST(now AS DATE)",
    "curdate": "CAST(now AS DATE)",
    "localtimestamp": "CAST(now AS TIMESTAMP_NTZ)",
    "unix_timestamp": "unix_timestamp(now)",
}
# These need no parentheses; a bare localtimestamp is a column to Spark.
_KEYWORDS = ("current_timestamp", "current_date")


def replace_now(query: str) -> tuple[str, bool]:
    """The query with each call replaced by a scalar subquery, on the same line, and whether there was one.

    >>> replace_now("SELECT * FROM orders WHERE placed > now() - INTERVAL 1 DAY")
    ('SELECT * FROM orders WHERE placed > (SELECT now FROM __penstock_clock) - INTERVAL 1 DAY', True)
    >>> replace_now("SELECT 'now()' AS now FROM orders")
    ("SELECT 'now()' AS now FROM orders", False)
    """
    tokens = Source(query).tokens()
    pieces: list[str] = []
    copied = 0
    for index, token in enumerate(tokens):
        end = _end_of_call(tokens, index)
        if end is None:
            continue
        value = _VALUES[token.text.lower()]
        newlines = "\n" * query.count("\n", token.start, end)
        pieces += [query[copied : token.start], f"(SELECT {value} FROM {CLOCK}){newlines}"]
        copied = end
    return "".join([*pieces, query[copied:]]), bool(pieces)


def _end_of_call(tokens: Sequence[Token], index: int) -> int | None:
    """Where the call that starts here ends; None for a column, an alias, or a call with arguments."""
    token = tokens[index]
    name = token.text.lower()
    if token.kind is not Kind.WORD or name not in _VALUES:
        return None
    before = tokens[index - 1] if index else None
    if before is not None and (before.is_word(".") or before.is_word("AS") or before.is_word(":")):
        return None
    after = tokens[index + 1 : index + 3]
    if [t.text for t in after] == ["(", ")"]:
        return after[-1].end
    if name not in _KEYWORDS or (after and after[0].text in ("(", ".")) or _ends_operand(before):
        return None
    return token.end


def _ends_operand(token: Token | None) -> bool:
    """Whether a name behind this token is an alias without AS."""
    if token is None:
        return False
    if token.kind is Kind.WORD:
        return not token.keyword
    return token.kind is not Kind.SYMBOL or token.text in (")", "]")
