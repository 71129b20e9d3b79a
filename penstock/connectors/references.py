"""`${env:NAME}` in a configuration: where a secret is, instead of the secret.

Splits and positions are written to the journal, so they hold the reference. It is resolved where the secret
is needed: in the driver and in every task.
"""

from __future__ import annotations

import os
import re

from penstock.errors import ConnectorError

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def is_reference(text: str) -> bool:
    """True if the text is one reference and nothing else.

    >>> is_reference("${env:TOKEN}"), is_reference("hunter2")
    (True, False)
    """
    return _REFERENCE.fullmatch(text) is not None


def resolved(text: str) -> str:
    """The text with the values of the variables it refers to."""
    return _REFERENCE.sub(lambda found: _value(found.group(1)), text)


def _value(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConnectorError(
            f"the environment variable {name} is not set; set it for the driver and for every executor"
        )
    return value
