"""What becomes of each table and view when a program takes another's place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.engine.fingerprints import Identity, Kind
from penstock.engine.relations import CLOCK


@dataclass(frozen=True)
class Parts:
    """The tables, or the views, of two programs, by what becomes of them."""

    kept: tuple[str, ...]
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Names are spelled as in the new program, and those that it has no more as in the old one."""

    tables: Parts
    views: Parts

    @property
    def filled(self) -> tuple[str, ...]:
        """The views that hold no rows yet: new ones, and those whose rows were another view's."""
        return (*self.views.added, *self.views.changed)

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Kind, name, what becomes of it, and why, one row for each relation of either program."""
        for kind, parts, verbs in (
            (Kind.TABLE, self.tables, _OF_TABLES),
            (Kind.VIEW, self.views, _OF_VIEWS),
        ):
            fates = (parts.kept, parts.added, parts.changed, parts.removed)
            for names, (verb, why) in zip(fates, verbs, strict=True):
                yield from ((kind.value, name, verb, why) for name in names)

    def __str__(self) -> str:
        rows = list(self.rows())
        width = max((len(name) for _, name, _, _ in rows), default=0)
        return "\n".join(
            f"{kind:5}  {name:{width}}  {verb}{f': {why}' if why else ''}" for kind, name, verb, why in rows
        )


_OF_TABLES = (
    ("kept", ""),
    ("added", ""),
    ("changed", "its columns or its key are others"),
    ("dropped", ""),
)
_OF_VIEWS = (
    ("kept", ""),
    ("filled", "it is new"),
    ("filled", "its query changed, or what it reads did"),
    ("dropped", ""),
)


def difference(old: Mapping[str, Identity], new: Mapping[str, Identity]) -> Difference:
    """Compare two programs by the identities of their relations."""
    return Difference(_parts(old, new, Kind.TABLE), _parts(old, new, Kind.VIEW))


def _parts(old: Mapping[str, Identity], new: Mapping[str, Identity], kind: Kind) -> Parts:
    before, after = (
        {name: found for name, found in program.items() if found.kind is kind and name != CLOCK}
        for program in (old, new)
    )
    both = {name: found for name, found in after.items() if name in before}
    kept = {name for name, found in both.items() if found.fingerprint == before[name].fingerprint}
    return Parts(
        kept=tuple(found.name for name, found in both.items() if name in kept),
        added=tuple(found.name for name, found in after.items() if name not in before),
        changed=tuple(found.name for name, found in both.items() if name not in kept),
        removed=tuple(found.name for name, found in before.items() if name not in after),
    )
