"""What may change in a program between two runs on one storage directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import StorageError
from penstock.sql import Program


def refuse_changed_connectors(path: Path, then: Program, now: Program) -> None:
    """Connectors may come and go, and none may become another under the same name."""
    for name, connector in now.connectors.items():
        before = then.connectors.get(name)
        if before is None:
            continue
        for place, was, is_ in _differences("", before.config, connector.config):
            if place.split(".")[0] in ("transport", "format"):
                raise StorageError(
                    f"the connector {name} is not the one that filled {path}: its {place} was"
                    f" {was!r} and is {is_!r}. Change it back, give the new connector a name of its own,"
                    " or start with an empty directory."
                )


def _differences(place: str, was: Any, is_: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two configurations differ.

    >>> list(_differences("", {"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}))
    [('a.b', 1, 3)]
    """
    if isinstance(was, dict) and isinstance(is_, dict):
        for key in was | is_:
            yield from _differences(f"{place}.{key}".lstrip("."), was.get(key), is_.get(key))
    elif was != is_:
        yield place, was, is_
