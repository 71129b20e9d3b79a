"""Reading the tokens of one statement from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import ProgramError
from penstock.sql.literals import Literal, read_literal
from penstock.sql.source import Kind, Source, Token


class Cursor:
    """A place in a statement; `statement` names it in errors, more exactly once its name was read."""

    def __init__(self, source: Source, tokens: Sequence[Token], statement: str) -> None:
        self.source = source
        self.statement = statement
        self._tokens = tokens
        self._index = 0
        end = tokens[-1].end if tokens else 0
        self._end = Token(Kind.END, "", end, end)

    def peek(self, ahead: int = 0) -> Token:
        """The token that comes next, or one after it."""
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else self._end

    def take(self) -> Token:
        """The next token; the cursor moves behind it."""
        token = self.peek()
        self._index += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether these words or symbols come next."""
        return all(self.peek(ahead).is_word(word) for ahead, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Move behind these words if they come next."""
        if not self.sees(*words):
            return False
        self._index += len(words)
        return True

    def expect(self, *words: str, instead: str | None = None) -> None:
        """Move behind these words, which must come next; `instead` is what an error says was expected."""
        for word in words:
            if not self.accept(word):
                raise self.expected(instead or " ".join(words))

    def name(self, what: str) -> Token:
        """A name, plain or in backticks."""
        if self.peek().kind not in (Kind.WORD, Kind.QUOTED):
            raise self.expected(what)
        return self.take()

    def names(self, what: str) -> list[Token]:
        """A list of names in parentheses."""
        self.expect("(", instead=f"( and {what}s")
        found = [self.name(f"a {what}")]
        while self.accept(","):
            found.append(self.name(f"a {what}"))
        self.expect(")", instead=f"',' and another {what}, or ')'")
        return found

    def string(self, what: str) -> Literal:
        """A string literal."""
        tokens: list[Token] = []
        while self.peek().kind is Kind.STRING:
            tokens.append(self.take())
        if not tokens:
            raise self.expected(what)
        return read_literal(tokens)

    def expected(self, what: str) -> ProgramError:
        """The error that something else should come next."""
        return self.error(f"expected {what}, found {self.peek()}")

    def error(self, message: str, at: Token | int | None = None) -> ProgramError:
        """An error at a token or an offset, or at the next token."""
        offset = at if isinstance(at, int) else (at or self.peek()).start
        return self.source.error(message, offset, self.statement)
