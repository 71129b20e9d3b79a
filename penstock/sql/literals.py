"""String literals: their value as Spark reads it, and where each character of the value is in the program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.sql.source import Token

_ESCAPE = re.compile(
    r"\\(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[01][0-7]{2})|(?P<char>.))",
    re.DOTALL,
)
_SPECIAL = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class Literal:
    """A string and, for each of its characters and for its end, the place in the program."""

    value: str
    offsets: tuple[int, ...]


def read_literal(tokens: Sequence[Token]) -> Literal:
    """The value of adjacent strings, which are one to Spark; `'it''s'` is two of them and has a quote."""
    pieces: list[tuple[str, int]] = []
    for index, token in enumerate(tokens):
        if index and token.start == tokens[index - 1].end and token.text[0] == tokens[index - 1].text[-1]:
            pieces.append((token.text[0], token.start))
        pieces.extend(_characters(token))
    characters = [(c, offset) for text, offset in pieces for c in text]
    return Literal(
        "".join(c for c, _ in characters), (*(offset for _, offset in characters), tokens[-1].end - 1)
    )


def _characters(token: Token) -> Iterator[tuple[str, int]]:
    raw = token.text[0] in "rR"
    offset, end = (2 if raw else 1), len(token.text) - 1
    while offset < end:
        escape = None if raw else _ESCAPE.match(token.text, offset, end)
        if escape is None:
            yield token.text[offset], token.start + offset
            offset += 1
        else:
            yield _unescape(escape), token.start + offset
            offset = escape.end()


def _unescape(escape: re.Match[str]) -> str:
    if char := escape["char"]:
        return _SPECIAL.get(char, char)
    if octal := escape["octal"]:
        return chr(int(octal, 8))
    code = int(escape["short"] or escape["long"], 16)
    return chr(code) if code <= 0x10FFFF else "\N{REPLACEMENT CHARACTER}"
