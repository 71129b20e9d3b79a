"""What may change in a program between two runs on one storage directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.checkpoint.model import Saved
from penstock.connectors import mark_of
from penstock.errors import StorageError
from penstock.sql import Program, Table, View


def connectors_of(program: Program, before: Saved | None = None) -> dict[str, Any]:
    """What each connector is: whose it is, and what it reads or writes.

    One that was left out is remembered as long as its position or what it was given is.
    """
    relations: tuple[Table | View, ...] = (*program.tables, *program.views)
    now = {
        c.name: {"relation": relation.name.lower(), **mark_of(c, relation)}
        for relation in relations
        for c in relation.connectors
    }
    if before is None:
        return now
    known = {*before.positions, *before.delivered}
    return {**{name: mark for name, mark in before.connectors.items() if name in known}, **now}


def refuse_changed_connectors(path: Path, saved: Saved, program: Program) -> None:
    """Connectors may come and go, and none may become another under the same name."""
    for name, mark in connectors_of(program).items():
        before: Mapping[str, Any] | None = saved.connectors.get(name)
        if before is None:
            continue
        for place, was, is_ in _differences("", before, mark):
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
