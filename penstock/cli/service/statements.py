"""SQL as it is typed: where a statement ends."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      '(?:[^'\\]|\\.|'')*(?:'|\Z)         # a text
    | "(?:[^"\\]|\\.|"")*(?:"|\Z)         # a text or a name
    | `[^`]*(?:`|\Z)                      # a name
    | --[^\n]*                            # a comment up to the end of the line
    | /\*.*?(?:\*/|\Z)                    # a comment
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)


def split(text: str) -> tuple[list[str], str]:
    """The statements that are complete, and what is left of an unfinished one.

    >>> split("SELECT ';' -- not here;\\n, 1; SELECT 2")
    (["SELECT ';' -- not here;\\n, 1"], 'SELECT 2')
    """
    statements = []
    begin = 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            if statement := text[begin : token.start()].strip():
                statements.append(statement)
            begin = token.end()
    return statements, text[begin:].strip()
