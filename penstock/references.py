"""`${env:NAME}` and `${secret:NAME}` in a configuration: where a secret is, instead of the secret.

Splits and positions are written to the journal, so they hold the reference. It is resolved where the secret
is needed: in the driver and in every task. `${env:NAME}` is an environment variable, `${secret:NAME}` the
content of the file NAME in the directory that the environment variable PENSTOCK_SECRETS names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConnectorError

SECRETS = "PENSTOCK_SECRETS"
"""The environment variable that names the directory of secrets."""

_REFERENCE = re.compile(r"\$\{(env|secret):([A-Za-z_][A-Za-z0-9_.-]*)\}")
_SHORTEST = 4
"""Shorter values are words like any other: taking them out of texts would hide more than secrets."""

_resolved: set[str] = set()


def is_reference(text: str) -> bool:
    """True if the text is one reference and nothing else.

    >>> is_reference("${env:TOKEN}"), is_reference("${secret:token}"), is_reference("hunter2")
    (True, True, False)
    """
    return _REFERENCE.fullmatch(text) is not None


def has_reference(text: str) -> bool:
    """True if a part of the text is a reference."""
    return _REFERENCE.search(text) is not None


def resolved(text: str) -> str:
    """The text with the values that it refers to."""
    return _REFERENCE.sub(lambda found: _value(found.group(1), found.group(2)), text)


def redacted(text: str) -> str:
    """A text for people, without any secret that this process has resolved."""
    for value in sorted(_resolved, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def redacted_in(value: Any) -> Any:
    """The same for all texts in a JSON value.

    >>> redacted_in({"a": ["b", 1]})
    {'a': ['b', 1]}
    """
    if not _resolved:
        return value
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_in(inner) for key, inner in value.items()}
    return [redacted_in(inner) for inner in value] if isinstance(value, list) else value


def _value(kind: str, name: str) -> str:
    value = _variable(name) if kind == "env" else _secret(name)
    if len(value) >= _SHORTEST:
        _resolved.add(value)
    return value


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConnectorError(
            f"the environment variable {name} is not set; set it for the driver and for every executor"
        )
    return value


def _secret(name: str) -> str:
    directory = os.environ.get(SECRETS)
    if not directory:
        raise ConnectorError(
            f"${{secret:{name}}} is the file {name} in a directory of secrets; name that directory with the"
            f" environment variable {SECRETS}"
        )
    try:
        return (Path(directory) / name).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConnectorError(
            f"the secret {name} cannot be read ({reason}); put it into the file {name} of the directory that"
            f" {SECRETS} names"
        ) from error
