"""What a statement is meant to be, by its first word."""

from __future__ import annotations


def is_insert(sql: str) -> bool:
    """Whether a text is meant to be an INSERT: whoever reads it next says what is wrong with it.

    >>> is_insert(" insert INTO t VALUES (1)"), is_insert("SELECT 1"), is_insert("-- x\\nINSERT INTO t")
    (True, False, True)
    """
    rest = sql.strip()
    while rest.startswith(("--", "/*")):
        _, _, rest = rest.partition("\n" if rest.startswith("--") else "*/")
        rest = rest.strip()
    return rest[:6].upper() == "INSERT"
