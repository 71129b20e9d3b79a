"""Reading a connector's JSON configuration: every wrong field is named, with what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import ConnectorError

T = TypeVar("T")

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True)
class Section:
    """One object of the configuration; `path` says where it stands, for messages."""

    path: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, path: str, value: Any) -> Section:
        if not isinstance(value, Mapping):
            raise ConnectorError(f"{path}: expected an object, found {value!r}")
        return cls(path, value)

    def only(self, allowed: Sequence[str]) -> None:
        """Refuse fields that nobody would read: a misspelled option must not be silently ignored."""
        for name in self.values:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"known fields: {', '.join(allowed)}"
                raise ConnectorError(f"{self.path}: unknown field '{name}'; {hint}")

    def get(self, name: str, kind: type[T], default: T) -> T:
        value = self.optional(name, kind)
        return default if value is None else value

    def required(self, name: str, kind: type[T]) -> T:
        value = self.optional(name, kind)
        if value is None:
            raise ConnectorError(f"{self.path}: the field '{name}' is missing; expected {_KINDS[kind]}")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        value = self.values.get(name)
        if value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConnectorError(f"{self.path}.{name}: expected {_KINDS[kind]}, found {value!r}")
        return value

    def count(self, name: str, *, least: int = 0) -> int | None:
        """An optional integer that must not be below `least`."""
        value = self.optional(name, int)
        if value is not None and value < least:
            raise ConnectorError(
                f"{self.path}.{name}: expected an integer of at least {least}, found {value}"
            )
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self.get(name, str, default)
        if value not in allowed:
            raise ConnectorError(f"{self.path}.{name}: expected one of {', '.join(allowed)}, found {value!r}")
        return value

    def section(self, name: str) -> Section:
        """A nested object; an empty one if the field is absent."""
        return Section.of(f"{self.path}.{name}", self.values.get(name) or {})
