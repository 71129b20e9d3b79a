"""Program text, cut into tokens that know their exact place.

sqlglot finds the tokens, by the lexical rules of Spark SQL. They are reduced to the few kinds that the
parser of statement headers tells apart, so that nothing else depends on sqlglot's many token types.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as SqlglotToken
from sqlglot.tokenizer_core import TokenType

from penstock.errors import ProgramError

DIALECT = "spark"

_WORDS = re.compile(r"\w+(\s+\w+)*")
_STRING = re.compile(r"[rR]?['\"]")
_QUOTE = re.compile(r"--[^\n]*|/\*|[rR]?'|[rR]?\"|`")
_BAD_HEX = re.compile(r"[xX](['\"])(?![0-9a-fA-F]*\1)")


class Kind(Enum):
    """What the header parser tells apart."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True)
class Token:
    """A piece of the program, from `start` to just before `end`.

    `text` is as written, but a QUOTED name is without its quotes. A word that is no `keyword` can only be a
    name.
    """

    kind: Kind
    text: str
    start: int
    end: int
    keyword: bool = False

    def __str__(self) -> str:
        return "the end of the statement" if self.kind is Kind.END else f"'{self.text}'"

    def is_word(self, word: str) -> bool:
        """Whether this is the given word or symbol, in any case, and not a quoted name or a string."""
        return self.kind in (Kind.WORD, Kind.SYMBOL) and self.text.upper() == word


@dataclass(frozen=True)
class Source:
    """A text with places, which count lines and columns from 1."""

    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of a character."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def error(self, message: str, offset: int, statement: str | None = None) -> ProgramError:
        """An error that says where it is; the caller raises it."""
        line, column = self.place(offset)
        return ProgramError(message, line=line, column=column, statement=statement)

    def tokens(self) -> list[Token]:
        """All tokens; comments are not among them."""
        try:
            found = sqlglot.tokenize(self.text, read=DIALECT)
        except TokenError as cause:
            raise self._unreadable() from cause
        tokens: list[Token] = []
        for token in found:
            # A number with a suffix, like 1L, comes as three tokens in the same place.
            if not tokens or token.start >= tokens[-1].end:
                tokens.extend(self._reduce(token))
        return tokens

    def statements(self) -> list[list[Token]]:
        """The tokens of each statement, without the semicolons; empty statements are left out."""
        return _split(self.tokens())

    def _reduce(self, token: SqlglotToken) -> list[Token]:
        start, end = token.start, token.end + 1
        text = self.text[start:end]
        if token.token_type is TokenType.IDENTIFIER:
            return [Token(Kind.QUOTED, token.text, start, end)]
        if token.token_type is TokenType.NUMBER:
            return [Token(Kind.NUMBER, text, start, end)]
        if _STRING.match(text):
            return [Token(Kind.STRING, text, start, end)]
        if _WORDS.fullmatch(text):
            # sqlglot joins some pairs of words, such as PRIMARY KEY, into one token.
            keyword = token.token_type is not TokenType.VAR
            return [
                Token(Kind.WORD, match.group(), start + match.start(), start + match.end(), keyword)
                for match in re.finditer(r"\w+", text)
            ]
        return [Token(Kind.SYMBOL, text, start, end)]

    def _unreadable(self) -> ProgramError:
        """Why the text cannot be cut into tokens: sqlglot says that, but not where."""
        message, offset = self._unclosed() or self._bad_binary() or ("the program cannot be read as SQL", 0)
        before = Source(self.text[:offset]).tokens()
        number = len(_split(before)) + (not before or before[-1].is_word(";"))
        return self.error(message, offset, f"statement {number}")

    def _unclosed(self) -> tuple[str, int] | None:
        offset = 0
        while opening := _QUOTE.search(self.text, offset):
            quote = opening.group()
            if quote.startswith("--"):
                closed: int | None = opening.end()
            elif quote == "/*":
                closed = _end_of_comment(self.text, opening.end())
            else:
                closed = self._end_of_quote(opening)
            if closed is None:
                what = {"/*": "comment", "`": "quoted name"}.get(quote, "string")
                close = "*/" if quote == "/*" else quote[-1]
                return f"this {what} is never closed: expected {close}", opening.start()
            offset = closed
        return None

    def _bad_binary(self) -> tuple[str, int] | None:
        bad = _BAD_HEX.search(self.text)
        return ("expected hexadecimal digits in this binary literal", bad.start()) if bad else None

    def _end_of_quote(self, opening: re.Match[str]) -> int | None:
        quote = opening.group()
        raw = len(quote) > 1 or quote == "`"
        body = re.compile(
            r"[^X]*X".replace("X", quote[-1]) if raw else rf"(?:\\.|[^\\{quote}])*{quote}", re.DOTALL
        )
        closing = body.match(self.text, opening.end())
        return closing.end() if closing else None


def _end_of_comment(text: str, offset: int) -> int | None:
    """Where a bracketed comment ends; like Spark's, they nest."""
    depth = 1
    for bracket in re.compile(r"/\*|\*/").finditer(text, offset):
        depth += 1 if bracket.group() == "/*" else -1
        if depth == 0:
            return bracket.end()
    return None


def _split(tokens: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_word(";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]
