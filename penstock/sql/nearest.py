"""What a mistyped name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, or None if none is like it.

    >>> nearest("ordres", ["customers", "Orders"])
    'Orders'
    >>> nearest("x", ["customers", "Orders"]) is None
    True
    """
    spelling = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), spelling, n=1, cutoff=0.6)
    return spelling[matches[0]] if matches else None


def suggestion(name: str, known: Iterable[str], what: str) -> str:
    """The end of an error text about an unknown name: the nearest known one, or else all of them.

    >>> suggestion("ordres", ["orders"], "tables")
    "did you mean 'orders'?"
    >>> suggestion("x", ["orders", "customers"], "tables")
    'known tables: orders, customers'
    """
    known = list(known)
    match = nearest(name, known)
    if match is not None:
        return f"did you mean '{match}'?"
    return f"known {what}: {', '.join(known) or 'none'}"
